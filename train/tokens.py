"""What a manifest set says of its tokens."""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import StoreError
from shared.manifest_set import ManifestSet


@dataclass(frozen=True)
class TokenSpec:
    """What the manifest set says of its tokens: ids are in [0, vocab_size), a caption has at most max_tokens of them.

    pad_id: fills arrays behind a caption's last token. It may be a word's id too: masks say what is a token.
    embedding: numbers of the stored embedding that comes with each caption, None where none does.
    """

    vocab_size: int
    pad_id: int
    max_tokens: int
    embedding: int | None = None


def token_spec(manifest: ManifestSet, max_tokens: int | None, *, embeddings: bool = False) -> TokenSpec:
    """What the set says of its tokens, with captions cut at `max_tokens`.

    embeddings: whether captions come with theirs. Raises StoreError where it says less, or has none.
    """
    said = manifest.info.tokenizer
    missing = [key for key in ("vocab_size", "pad_id", "max_length") if not isinstance(said.get(key), int)]
    if missing:
        raise StoreError(
            f"set {manifest.name!r} does not say {', '.join(missing)} of its tokenizer (it says {said}): "
            "make it again with `python -m preprocess manifests CONFIG`"
        )
    longest = int(said["max_length"])
    dim = manifest.embedding_info.dim if embeddings else None
    return TokenSpec(int(said["vocab_size"]), int(said["pad_id"]), min(longest, max_tokens or longest), dim)
