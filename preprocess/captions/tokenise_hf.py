"""Hugging Face tokenizers: from a folder, from an installed package, or by hub id from the local cache.

Nothing is fetched here: a run must not wait for a network, and an id may mean other files tomorrow.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from preprocess.captions.tokens import Encoded
from preprocess.captions.word_memory import WordMemory, all_ids, word_memory
from shared.errors import EnvironmentLacking, RequestError
from shared.fingerprint import fingerprint
from shared.resources import resolve_resource


class HuggingFaceTokenizer:
    """Any tokenizer of the `transformers` library, special tokens included as its model expects them."""

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._special = int(tokenizer.num_special_tokens_to_add())
        self._unknown_id = tokenizer.unk_token_id
        vocabulary = sorted(tokenizer.get_vocab().items())
        self.identity: dict[str, Any] = {
            "kind": "huggingface",
            "class": type(tokenizer).__name__,
            "vocabulary": fingerprint(vocabulary),
            "pipeline": _pipeline(tokenizer),
            "vocab_size": len(tokenizer),
            "pad_id": int(tokenizer.pad_token_id),
            "max_length": max_length,
        }
        self._memory: WordMemory | None = None
        if tokenizer.is_fast:
            backend = tokenizer.backend_tokenizer
            backend.no_padding()
            backend.enable_truncation(max_length)
            self._memory = word_memory(backend)
            self._before, self._after = _special_ids(backend)

    def encode(self, texts: Sequence[str]) -> Encoded:
        if self._tokenizer.is_fast:
            return self._encode_fast(texts)
        return self._encode_slow(texts)

    def _encode_fast(self, texts: Sequence[str]) -> Encoded:
        remembered = self._memory.read(texts) if self._memory else [None] * len(texts)
        others = [text for text, ids in zip(texts, remembered, strict=True) if ids is None]
        # The fast form does not work out which characters each token is from: ids are the same.
        encodings = iter(self._tokenizer.backend_tokenizer.encode_batch_fast(others))
        kept: list[list[int]] = []
        read: list[list[int]] = []
        tokens: list[int] = []
        room = self._max_length - self._special
        for bare in remembered:
            if bare is None:
                encoding = next(encodings)
                kept.append(encoding.ids)
                read.append(all_ids(encoding) if len(encoding.ids) >= self._max_length else encoding.ids)
                parts = 1 + (len(encoding.overflowing) if len(read[-1]) > self._max_length else 0)
                tokens.append(len(read[-1]) - self._special * parts)
            else:
                kept.append([*self._before, *bare[:room], *self._after])
                read.append(bare)
                tokens.append(len(bare))
        return self._count(kept, read, tokens)

    def _encode_slow(self, texts: Sequence[str]) -> Encoded:
        if not texts:
            return Encoded([], 0, 0, 0, 0)
        options = {"padding": False, "return_attention_mask": False, "verbose": False}
        kept = self._tokenizer(list(texts), truncation=True, max_length=self._max_length, **options)["input_ids"]
        read = self._tokenizer(list(texts), truncation=False, add_special_tokens=False, **options)["input_ids"]
        return self._count(kept, read, [len(ids) for ids in read])

    def _count(self, kept: list[list[int]], read: list[list[int]], tokens: list[int]) -> Encoded:
        unknown = [0 if self._unknown_id is None else ids.count(self._unknown_id) for ids in read]
        return Encoded(
            ids=kept,
            tokens=sum(tokens),
            truncated=sum(count > self._max_length - self._special for count in tokens),
            unknown=sum(unknown),
            empty=sum(count <= bad for count, bad in zip(tokens, unknown, strict=True)),
        )


def _special_ids(backend: Any) -> tuple[list[int], list[int]]:
    """The ids that stand before and after those of a text."""
    (encoding,) = backend.encode_batch(["a"])
    own = [at for at, special in enumerate(encoding.special_tokens_mask) if not special]
    return encoding.ids[: own[0]], encoding.ids[own[-1] + 1 :]


def _pipeline(tokenizer: Any) -> str | None:
    """Hash of all else that decides the ids (lower-casing, merges, special tokens); a slow tokenizer does not tell."""
    if not tokenizer.is_fast:
        return None
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    return fingerprint({key: part for key, part in parts.items() if key not in {"version", "truncation", "padding"}})


def load_hugging_face(name: str, max_length: int, pad_token: str | None) -> HuggingFaceTokenizer:
    """The tokenizer `name`.

    Raises EnvironmentLacking when it is not on this machine, RequestError when its pad token or its maximum does not
    fit the request or the model beside it.
    """
    from transformers import AutoTokenizer  # takes a second to import: only when a set is made

    source = _local_source(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    except (OSError, ValueError) as error:
        raise EnvironmentLacking(_missing(name, error)) from None
    _set_padding(tokenizer, name, pad_token)
    _check_length(tokenizer, name, max_length)
    _check_model(tokenizer, name, source, max_length)
    return HuggingFaceTokenizer(tokenizer, max_length)


def _local_source(name: str) -> str:
    path = resolve_resource(name)
    looks_like_path = name.startswith(("package:", "/", ".", "~"))
    if not path.exists() and looks_like_path:
        raise EnvironmentLacking(f"tokenizer {name}: no such folder; give one that holds tokenizer.json or vocab files")
    return str(path) if looks_like_path or path.is_dir() else name


def _missing(name: str, error: Exception) -> str:
    if Path(name).is_dir() or name.startswith(("package:", "/", ".", "~")):
        reason = str(error).partition("\n")[0]
        return f"tokenizer {name}: the folder holds no tokenizer that transformers can read ({reason})"
    return f"tokenizer {name!r} is not in the local cache and nothing is fetched: get it once with `hf download {name}`"


def _set_padding(tokenizer: Any, name: str, pad_token: str | None) -> None:
    if pad_token is not None:
        if pad_token not in tokenizer.get_vocab():
            raise RequestError(f"tokenizer {name}: pad_token {pad_token!r} is not in its vocabulary")
        tokenizer.pad_token = pad_token
    if tokenizer.pad_token_id is None:
        raise RequestError(f"tokenizer {name} has no pad token: name one of its tokens as `pad_token`")


def _check_length(tokenizer: Any, name: str, max_length: int) -> None:
    special = tokenizer.num_special_tokens_to_add()
    if max_length <= special:
        raise RequestError(f"max_length {max_length} leaves no room: tokenizer {name} adds {special} special tokens")
    if max_length > tokenizer.model_max_length:
        raise RequestError(
            f"max_length {max_length} is more than tokenizer {name} is made for ({tokenizer.model_max_length})"
        )


def _check_model(tokenizer: Any, name: str, source: str, max_length: int) -> None:
    """The model that stands beside the tokenizer, if one does, must be able to take its ids."""
    from transformers.utils import cached_file

    file = cached_file(source, "config.json", local_files_only=True, _raise_exceptions_for_missing_entries=False)
    if file is None:
        return
    model = json.loads(Path(file).read_text(encoding="utf-8"))
    positions, size, pad = (model.get(key) for key in ("max_position_embeddings", "vocab_size", "pad_token_id"))
    if positions is not None and max_length > positions:
        raise RequestError(f"max_length {max_length} is more than the {positions} positions of the model of {name}")
    if size is not None and len(tokenizer) > size:
        raise RequestError(f"tokenizer {name} has {len(tokenizer)} tokens, the model beside it {size} embeddings")
    if pad is not None and pad != tokenizer.pad_token_id:
        raise RequestError(f"tokenizer {name} pads with {tokenizer.pad_token_id}, the model beside it with {pad}")
