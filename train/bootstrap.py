"""How far a score would move with other videos: the percentile bootstrap (Efron 1979)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from train.metrics import Ranks
from train.permutation import keyed_hash, mix_key

# Entries of (resamples, queries) that are held at a time.
_ENTRIES = 1 << 23


def intervals(
    ranks: Ranks, video_Q: torch.Tensor, recall_at: Sequence[int], *, resamples: int, confidence: float, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """`R@k`, `MedR`, `MeanR` -> the central part of their values under resampling.

    Whole videos are drawn with repetition, since the queries of one video are no independent evidence. video_Q: int64,
    the video of each query. A pure function of its arguments.
    """
    _, place_Q = np.unique(video_Q.cpu().numpy(), return_inverse=True)
    videos = int(place_Q.max()) + 1
    values = {f"R@{k}": ranks.found_within(k).numpy() for k in recall_at} | {"MeanR": ranks.expected().numpy()}
    sums_VM = np.stack([np.bincount(place_Q, value, videos) for value in values.values()], axis=1)
    queries_V = np.bincount(place_Q, minlength=videos)
    order_Q = np.argsort(values["MeanR"], kind="stable")
    sorted_Q, sorted_place_Q = values["MeanR"][order_Q], place_Q[order_Q]
    drawn, medians = [], []
    at_once = max(1, _ENTRIES // len(place_Q))
    for first in range(0, resamples, at_once):
        count_RV = resample_counts(range(first, min(first + at_once, resamples)), videos, seed)
        drawn.append((count_RV @ sums_VM) / (count_RV @ queries_V)[:, None])
        medians.append(_medians(sorted_Q, count_RV[:, sorted_place_Q]))
    edges = [(1 - confidence) / 2, (1 + confidence) / 2]
    table = dict(zip(values, np.concatenate(drawn).T, strict=True)) | {"MedR": np.concatenate(medians)}
    return {name: (float(low), float(high)) for name, (low, high) in _quantiles(table, edges).items()}


def resample_counts(numbers: range, videos: int, seed: int) -> np.ndarray:
    """int64 (R, V): how often each of V videos stands in resamples of these numbers; a pure function."""
    place_V = np.arange(videos)
    drawn = [keyed_hash(place_V, mix_key(seed, number)) % np.uint64(videos) for number in numbers]
    return np.stack([np.bincount(video_V.astype(np.int64), minlength=videos) for video_V in drawn])


def _medians(sorted_Q: np.ndarray, weight_RQ: np.ndarray) -> np.ndarray:
    """float64 (R,): the median of values in rising order, each counted as often as its weight says."""
    reached_RQ = weight_RQ.cumsum(axis=1)
    total_R = reached_RQ[:, -1]
    pairs = zip(reached_RQ, total_R.tolist(), strict=True)
    lows_highs = [np.searchsorted(row, [(total + 1) // 2, total // 2 + 1]) for row, total in pairs]
    middle: np.ndarray = sorted_Q[np.array(lows_highs)].mean(axis=1)
    return middle


def _quantiles(table: dict[str, np.ndarray], edges: list[float]) -> dict[str, np.ndarray]:
    return {name: np.quantile(values, edges) for name, values in table.items()}
