"""What an order hands to the data side: the samples of a batch by number, and the shape of their arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Selection:
    """Samples in order.

    window_B: int64, window numbers of the source's split. choice_BK: int64, places in each window's bag, -1 for none.
    source: number of the store that they are of, 0 where there is one. rows, tokens: T and L of the batch's arrays,
    which no sample exceeds; None for those that the data has for all its batches.
    """

    window_B: np.ndarray
    choice_BK: np.ndarray
    source: int = 0
    rows: int | None = None
    tokens: int | None = None

    def __len__(self) -> int:
        return len(self.window_B)

    def part(self, rank: int, size: int) -> Selection:
        """The rank-th of `size` contiguous parts; `size` divides the batch (see `check_ranks`)."""
        count = len(self) // size
        # Copies: a part that is pickled must not carry the whole batch with it.
        mine = slice(rank * count, (rank + 1) * count)
        return replace(self, window_B=self.window_B[mine].copy(), choice_BK=self.choice_BK[mine].copy())
