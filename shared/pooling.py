"""Mean and maximum of the rows of many windows of different lengths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

Pooling = Literal["mean", "max"]

# What a batch of padded windows may take: about what stays in a core's cache.
_BATCH_BYTES = 1 << 20
# NumPy converts float16 value by value; looking the values up is twice as fast.
_FLOAT32_OF = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def batches(rows_B: np.ndarray, row_bytes: int) -> Iterator[np.ndarray]:
    """Numbers of windows, longest first, that fit into a batch once they are padded to the longest of it."""
    order_B = np.argsort(-rows_B, kind="stable")
    start = 0
    while start < len(order_B):
        longest = int(rows_B[order_B[start]])
        count = max(1, _BATCH_BYTES // max(1, longest * row_bytes))
        yield order_B[start : start + count]
        start += count


def pooled(rows_BTD: np.ndarray, rows_B: np.ndarray, how: Pooling) -> np.ndarray:
    """float32 (B, D): mean or maximum of the first rows_B (at least 1) of each window's rows; rows_B must not increase.

    rows_BTD: float16, float32 or uint8.
    """
    result_BD = _float32(rows_BTD[:, 0])
    combine = np.add if how == "mean" else np.maximum
    for step in range(1, rows_BTD.shape[1]):
        # The windows that still have a row come first.
        count = int(np.count_nonzero(rows_B > step))
        combine(result_BD[:count], _float32(rows_BTD[:count, step]), out=result_BD[:count])
    if how == "mean":
        result_BD /= rows_B[:, None].astype(np.float32)
    return result_BD


def _float32(rows_BD: np.ndarray) -> np.ndarray:
    if rows_BD.dtype == np.float16:
        return np.take(_FLOAT32_OF, rows_BD.view(np.uint16))
    return rows_BD.astype(np.float32)
