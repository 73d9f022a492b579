"""How long the windows of a split are, in rows or tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from train.order.classes import LengthClasses
from train.order.layout import VideoLayout

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


def samples_by_class(
    layout: VideoLayout, classes: LengthClasses, lengths: Lengths, *, unit: Literal["video", "window"]
) -> np.ndarray:
    """float64 (C,): how many windows of each class an epoch has; for unit=video on average, as each video brings one
    of its windows."""
    samples_C = np.zeros(len(classes.sizes_C))
    for start in range(0, layout.size, _AT_ONCE):
        place_N = np.arange(start, min(start + _AT_ONCE, layout.size))
        weight_N = np.ones(len(place_N))
        if unit == "video":
            weight_N /= layout.count_V[np.searchsorted(layout.first_V, place_N, side="right") - 1]
        class_N = classes.of(lengths.of(layout.windows(place_N)))
        samples_C += np.bincount(class_N, weights=weight_N, minlength=len(samples_C))
    return samples_C


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
