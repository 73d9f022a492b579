"""The word list of HowTo100M: words by the regex `[\\w']+`, those outside the list dropped, ids from 1, 0 pads.

Source: the MIL-NCE release; its list is an .npy array of 66,250 words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from preprocess.captions.tokens import Encoded
from shared.errors import EnvironmentLacking, InputFileError
from shared.explain import why_unreadable
from shared.fingerprint import fingerprint
from shared.resources import resolve_resource

_WORD = re.compile(r"[\w']+")


class WordListTokenizer:
    """`words[k]` has the id k + 1. Looked up as written, then in lower case."""

    def __init__(self, words: Sequence[str], max_length: int) -> None:
        self._ids = {word: number + 1 for number, word in enumerate(words)}
        self._max_length = max_length
        self.identity: dict[str, Any] = {
            "kind": "words",
            "class": "WordListTokenizer",
            "vocabulary": fingerprint(list(words)),
            "vocab_size": len(words) + 1,
            "pad_id": 0,
            "max_length": max_length,
        }

    def encode(self, texts: Sequence[str]) -> Encoded:
        ids: list[list[int]] = []
        tokens = truncated = unknown = empty = 0
        for text in texts:
            words = _WORD.findall(text)
            found = [number for number in map(self._lookup, words) if number]
            tokens += len(words)
            unknown += len(words) - len(found)
            truncated += len(found) > self._max_length
            empty += not found
            ids.append(found[: self._max_length])
        return Encoded(ids, tokens, truncated, unknown, empty)

    def _lookup(self, word: str) -> int:
        return self._ids.get(word) or self._ids.get(word.lower(), 0)


def load_word_list(name: str, max_length: int) -> WordListTokenizer:
    """Read the vocabulary `name`: text, one word a line, or an .npy array of strings."""
    path = resolve_resource(name)
    try:
        words = _read(path)
    except FileNotFoundError:
        raise EnvironmentLacking(
            f"word list {path} does not exist: give the dict.npy of the MIL-NCE release, or a text of one word a line"
        ) from None
    except (OSError, ValueError) as error:
        why = why_unreadable(error)
        raise InputFileError(f"word list {path} cannot be read: {why}; expected one word a line or .npy") from None
    if not words or len(set(words)) != len(words):
        what = "is empty" if not words else "holds a word twice"
        raise InputFileError(f"word list {path} {what}: ids would not be those of its model")
    return WordListTokenizer(words, max_length)


def _read(path: Path) -> list[str]:
    if path.suffix == ".npy":
        return [str(word) for word in np.load(path, allow_pickle=False).tolist()]
    return path.read_text(encoding="utf-8").split()
