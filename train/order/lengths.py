"""How long the windows of a split are, in rows or tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Windows that are looked at together: temporary arrays stay small for a split of millions.
_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Lengths:
    """value_W: integers, the length of each window. longest: what any length counts at most, and one of them does."""

    value_W: np.ndarray
    longest: int

    def of(self, window_N: np.ndarray) -> np.ndarray:
        """Integers (N,): the lengths of these windows."""
        length_N: np.ndarray = np.minimum(self.value_W[window_N], self.longest)
        return length_N


def token_lengths(bag_W: np.ndarray, candidates: np.ndarray, token_offsets: np.ndarray, most: int) -> Lengths:
    """Tokens of the longest caption of each window's bag, at most `most`; 1 for an empty bag, whose slots have an id.

    bag_W: captions in each bag, all of `candidates` one bag after another. token_offsets: int64 (captions + 1,).
    """
    value_W = np.ones(len(bag_W), np.int32)
    done = 0
    for start in range(0, len(bag_W), _AT_ONCE):
        bag_N = bag_W[start : start + _AT_ONCE].astype(np.int64)
        caption_M = candidates[done : done + int(bag_N.sum())]
        done += len(caption_M)
        # Empty bags are passed over: reduceat would give them their neighbour's first caption.
        filled_N = bag_N > 0
        begins_N = (np.cumsum(bag_N) - bag_N)[filled_N]
        tokens_M = np.minimum(token_offsets[caption_M + 1] - token_offsets[caption_M], most)
        if len(begins_N):
            longest_N = np.maximum.reduceat(tokens_M, begins_N)
            value_W[start : start + len(bag_N)][filled_N] = np.maximum(longest_N, 1)
    return Lengths(value_W, int(value_W.max(initial=1)))
