"""Where the samples of a global batch stand in it, so that any contiguous part of it has its share of the long ones."""

from __future__ import annotations

from functools import lru_cache

import numpy as np


def balanced(length_B: np.ndarray) -> np.ndarray:
    """int64 (B,): which sample stands at each place; of equal lengths the first one comes first.

    It knows no world size, so the global batch is the same at every one. Longest first, the samples are dealt to two
    halves by the Thue-Morse sequence (0110 1001 ...), what each half got is dealt in the same way to its halves, and so
    on: that cancels not only the mean difference between neighbours, as turns would, but the higher ones too. The place
    of sample j is then the reversed bits of the inverse Gray code of j, in the manner of van der Corput's sequence.
    """
    longest_first_B = np.argsort(-length_B.astype(np.int64), kind="stable")
    standing_B: np.ndarray = longest_first_B[_places(len(length_B))]
    return standing_B


@lru_cache(maxsize=1024)
def _places(count: int) -> np.ndarray:
    """int64 (count,): which of `count` sorted samples stands at each place."""
    bits = max(1, (count - 1).bit_length())
    code = np.arange(count)
    for shift in (1, 2, 4, 8, 16, 32):
        code ^= code >> shift
    key = np.zeros_like(code)
    for bit in range(bits):
        key |= ((code >> bit) & 1) << (bits - 1 - bit)
    places = np.argsort(key, kind="stable")
    places.flags.writeable = False
    return places
