"""The token ids of a manifest set's captions, many captions in one call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from shared.errors import DamageFound
from shared.mapping import CutCheck

# Up to here a mask is faster looked up than compared.
_LONGEST_PREFIX = 512


class TokenTable:
    """Ids of captions in mapped files: caption c has tokens[offsets[c]:offsets[c + 1]].

    tokens: int32. offsets: int64. files: the two that they are mapped from.
    """

    def __init__(self, tokens: np.ndarray, offsets: np.ndarray, files: Sequence[Path]) -> None:
        self.tokens, self.offsets, self._files = tokens, offsets, files
        self._cut = CutCheck((tokens, offsets))
        # Element c is offsets[c] and offsets[c + 1]: one look-up instead of two.
        self._spans = np.ndarray((max(0, len(offsets) - 1),), "V16", offsets, strides=(8,))

    def fill(self, captions_BK: np.ndarray, pad_id: int, ids_BKL: np.ndarray, mask_BKL: np.ndarray) -> None:
        """ids_BKL (int32): ids of the given captions, cut at L, `pad_id` behind. mask_BKL (bool): where a token stands.

        captions_BK: integers, -1 for none. Raises DamageFound where a file was cut since it was opened.
        """
        cut = self._cut.first()
        if cut is not None:
            raise DamageFound(f"{self._files[cut]} was shortened while it was being read; run `verify` on the store")
        length = ids_BKL.shape[2]
        start_BK, length_BK = self._places(captions_BK, length)
        width = int(length_BK.max(initial=0))
        if width == 0:
            ids_BKL[...], mask_BKL[...] = pad_id, False
            return
        _prefixes(length_BK, mask_BKL)
        # Where they are much shorter than L, it is not worth while to look at what follows them.
        width = width if 2 * width < length else length
        ids_BKL[..., width:] = pad_id
        part_BKL = mask_BKL[..., :width]
        np.multiply(self._taken(start_BK, width), part_BKL, out=ids_BKL[..., :width])
        if pad_id:
            ids_BKL[..., :width] += np.multiply(~part_BKL, np.int32(pad_id))

    def _places(self, captions_BK: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray]:
        """Where each caption begins, and how many of its tokens are wanted: int64, int32, (B, K)."""
        if len(self._spans) == 0 or captions_BK.size == 0:
            return np.zeros(captions_BK.shape, np.int64), np.zeros(captions_BK.shape, np.int32)
        spans_BK2 = self._spans[np.maximum(captions_BK, 0)].view(np.int64).reshape(*captions_BK.shape, 2)
        length_BK = np.minimum(spans_BK2[..., 1] - spans_BK2[..., 0], longest)
        return spans_BK2[..., 0], np.where(captions_BK >= 0, length_BK, 0).astype(np.int32)

    def _taken(self, start_BK: np.ndarray, width: int) -> np.ndarray:
        """int32 (B, K, width): the tokens from each place on, whosever they are."""
        last = len(self.tokens) - width
        if last < 0 or int(start_BK.max()) > last:
            return self.tokens[np.minimum(start_BK[..., None] + np.arange(width), len(self.tokens) - 1)]
        # Element n is the tokens n to n + width: as many bytes in one piece instead of one by one.
        pieces = np.ndarray((last + 1,), f"V{4 * width}", self.tokens, strides=(4,))
        taken_BKL: np.ndarray = pieces[start_BK].view(np.int32).reshape(*start_BK.shape, width)
        return taken_BKL


def _prefixes(length_N: np.ndarray, out_NL: np.ndarray) -> None:
    """True in the first length_N places of each."""
    length = out_NL.shape[-1]
    if length > _LONGEST_PREFIX:
        np.less(np.arange(length, dtype=np.int32), length_N[..., None], out=out_NL)
    else:
        # Without `clip` NumPy would check every place beforehand, and fill a copy of `out`.
        np.take(_all_prefixes(length), length_N, axis=0, out=out_NL, mode="clip")


@lru_cache(maxsize=8)
def _all_prefixes(length: int) -> np.ndarray:
    """bool (length + 1, length): row n begins with n times True."""
    return np.tri(length + 1, length, -1, dtype=bool)
