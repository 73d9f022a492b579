"""What random rankings would score."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Chance:
    """Expected R@k of random rankings, and the central interval in which R@k then falls; shares in [0, 1]."""

    level: float
    low: float
    high: float


def chance_of(right_Q: torch.Tensor, k: int, items: int, *, confidence: float = 0.99) -> Chance:
    """R@k of random rankings of `items` candidates, of which `right_Q` (integers, one a query) are right.

    A random ranking misses with probability C(items - right, k) / C(items, k) (hypergeometric), so the number of found
    queries is binomial; the interval is its central part. Where queries differ in their number of right items it is the
    binomial of their mean probability, which is wider than their sum (Hoeffding 1956). It takes the queries as
    independent: where many windows look alike (those of one video) results scatter more than this.
    """
    if k < 1 or len(right_Q) == 0 or int(right_Q.min()) < 1 or int(right_Q.max()) > items:
        raise ValueError(f"chance needs positive counts and right <= items, got {k=}, {items=}, {right_Q=}")
    within = min(k, items)
    counts, queries = torch.unique(right_Q.long(), return_counts=True)
    levels = [1 - math.comb(items - right, within) / math.comb(items, within) for right in counts.tolist()]
    level = float(np.average(levels, weights=queries.numpy()))
    tail, total = (1 - confidence) / 2, len(right_Q)
    return Chance(
        level, _binomial_quantile(tail, total, level) / total, _binomial_quantile(1 - tail, total, level) / total
    )


def _binomial_quantile(share: float, trials: int, p: float) -> int:
    """Smallest count whose cumulative probability reaches `share`."""
    if p >= 1:
        return trials
    count_N = torch.arange(trials + 1, dtype=torch.float64)
    total = torch.tensor(float(trials), dtype=torch.float64)
    ways_N = torch.lgamma(total + 1) - torch.lgamma(count_N + 1) - torch.lgamma(total - count_N + 1)
    mass_N = (ways_N + count_N * math.log(p) + (total - count_N) * math.log1p(-p)).exp()
    reached = int(torch.searchsorted(mass_N.cumsum(0), share))
    return min(reached, trials)
