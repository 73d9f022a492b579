"""Which feature rows no extractor may give: with a value that is not finite, or zero everywhere."""

from __future__ import annotations

import math

import numpy as np


def not_finite_rows(rows: np.ndarray) -> np.ndarray:
    """bool (N,) of rows (N, *row_shape), floating: where a row has a NaN or an infinity."""
    flat = _flat(rows)
    if flat.dtype == np.float16:
        # NumPy has no fast test for float16: all five bits of the exponent say not finite.
        bad: np.ndarray = ((flat.view(np.uint16) & 0x7C00) == 0x7C00).any(axis=1)
        return bad
    finite: np.ndarray = np.isfinite(flat).all(axis=1)
    return ~finite


def zero_rows(rows: np.ndarray) -> np.ndarray:
    """bool (N,) of rows (N, *row_shape): where every value is zero, of either sign."""
    flat = _flat(rows)
    if flat.dtype == np.float16:
        flat = flat.view(np.uint16) & 0x7FFF
    filled: np.ndarray = flat.any(axis=1).astype(bool)
    return ~filled


def bad_row(rows: np.ndarray) -> tuple[int, str] | None:
    """The first row (N, *row_shape) that is not finite or zero everywhere, and which of the two; None without one."""
    if rows.size == 0:
        return None
    not_finite_N, zero_N = not_finite_rows(rows), zero_rows(rows)
    bad_N = not_finite_N | zero_N
    if not bad_N.any():
        return None
    row = int(np.argmax(bad_N))
    return row, "not finite" if not_finite_N[row] else "zero everywhere"


def _flat(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows.reshape(len(rows), math.prod(rows.shape[1:])))
