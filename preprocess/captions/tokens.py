"""What a tokenizer answers with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Encoded:
    """ids: of each text, unpadded and cut; the rest counts over the batch.

    tokens: read before the cut, without special ones. truncated: texts that were cut. unknown: tokens that the
    vocabulary lacks. empty: texts without any known token.
    """

    ids: list[list[int]]
    tokens: int
    truncated: int
    unknown: int
    empty: int
