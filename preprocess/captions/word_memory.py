"""The ids of words that were read before, for tokenizers that read every word by itself.

BERT's pipeline (Devlin et al. 2019: BertNormalizer, BertPreTokenizer, WordPiece) looks at nothing beyond white space,
so the ids of a text are those of its words, one after another. The library works out each of them every time it stands
there, and few words make up most of speech. Only texts of ASCII letters, digits and usual marks are read this way: no
added token can stand in them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

_PLAIN = re.compile(r"[A-Za-z0-9 .,:;!?'\"()&/%$#@+=*-]{1,1000}")
_STEPS = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer", "model": "WordPiece"}
_MOST_WORDS = 2**16


class WordMemory:
    """Remembers the words of one tokenizer of the `tokenizers` library, at most some 10 MiB of them."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._words: dict[str, list[int]] = {}

    def read(self, texts: Sequence[str]) -> list[list[int] | None]:
        """All ids of each text, uncut and without special ones; None for a text that has to be read as a whole."""
        words_of = [text.split() if _PLAIN.fullmatch(text) else None for text in texts]
        self._learn(chain.from_iterable(words for words in words_of if words is not None))
        known = self._words
        return [
            None if words is None else list(chain.from_iterable([known[word] for word in words])) for words in words_of
        ]

    def _learn(self, words: Iterable[str]) -> None:
        wanted = set(words)
        new = wanted - self._words.keys()
        if len(self._words) + len(new) > _MOST_WORDS:
            self._words, new = {}, wanted
        ordered = sorted(new)
        encodings = self._backend.encode_batch_fast(ordered, add_special_tokens=False)
        self._words.update(zip(ordered, map(all_ids, encodings), strict=True))


def word_memory(backend: Any) -> WordMemory | None:
    """None for a tokenizer whose pipeline is another one, or has an added token that plain text may hold."""
    parts = json.loads(backend.to_str())
    fits = all((parts[step] or {}).get("type") == kind for step, kind in _STEPS.items())
    # Of its characters one is neither letter nor mark, in ASCII, so that no step turns it into one: "[MASK]".
    added = (token["content"] for token in parts["added_tokens"])
    apart = all(any(char.isascii() and not _PLAIN.fullmatch(char) for char in content) for content in added)
    return WordMemory(backend) if fits and apart else None


def all_ids(encoding: Any) -> list[int]:
    """The ids of an encoding and of what was cut off."""
    ids: list[int] = encoding.ids
    return ids + [one for part in encoding.overflowing for one in part.ids]
