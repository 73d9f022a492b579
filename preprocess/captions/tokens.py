"""What a tokenizer answers with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Encoded:
    """ids: int32 (L,) per text, unpadded and cut; the rest counts over the batch.

    tokens: read before the cut, without special ones. truncated: texts that were cut. unknown: tokens that the
    vocabulary lacks. empty: texts without any known token.
    """

    ids: list[np.ndarray]
    tokens: int
    truncated: int
    unknown: int
    empty: int
