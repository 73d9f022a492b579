"""Retrieval metrics whose ties are expectations, and what chance would give.

A query's rank is the place of its best positive when equal similarities are put in random order: with g negatives above
it, m negatives and p positives at the same similarity, the expected rank is 1 + g + m / (p + 1), and R@k is the
probability that the rank is at most k. So a collapsed model scores exactly chance, and the order of the items, chunk
sizes and the number of ranks change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from shared.errors import RunFailed

RECALL_AT = (1, 5, 10)
_CHUNK_BYTES = 256 * 2**20


@dataclass(frozen=True)
class RetrievalMetrics:
    """recall: k -> expected share in [0, 1] of queries found within k. Ranks count from 1. queries, items: counts."""

    recall: dict[int, float]
    median_rank: float
    mean_rank: float
    queries: int
    items: int


@dataclass(frozen=True)
class Chance:
    """Expected R@k of random rankings, and the central interval in which R@k then falls; shares in [0, 1]."""

    level: float
    low: float
    high: float


def retrieval_both_ways(
    video_ND: torch.Tensor,
    text_MD: torch.Tensor,
    text_window_M: torch.Tensor,
    *,
    recall_at: Sequence[int] = RECALL_AT,
    video_names: Sequence[str] | None = None,
    text_names: Sequence[str] | None = None,
) -> dict[str, RetrievalMetrics]:
    """`text_to_video` (each text looks for its window) and `video_to_text` (each window for the best of its texts).

    video_ND: one embedding a window; text_MD: any number of texts a window; text_window_M: int64, the window of each
    text. Windows without a text are candidates of text_to_video, but no queries of video_to_text.
    Raises RunFailed naming the first embedding that is not finite.
    """
    refuse_non_finite(video_ND, "window", video_names)
    refuse_non_finite(text_MD, "text", text_names)
    window_N = torch.arange(len(video_ND), device=text_window_M.device)
    asking_N = torch.isin(window_N, text_window_M)
    return {
        "text_to_video": retrieval(text_MD, video_ND, text_window_M, window_N, recall_at=recall_at),
        "video_to_text": retrieval(
            video_ND[asking_N.to(video_ND.device)], text_MD, window_N[asking_N], text_window_M, recall_at=recall_at
        ),
    }


def retrieval(
    query_QD: torch.Tensor,
    item_ND: torch.Tensor,
    query_group_Q: torch.Tensor,
    item_group_N: torch.Tensor,
    *,
    recall_at: Sequence[int] = RECALL_AT,
) -> RetrievalMetrics:
    """Rank all items for every query by dot product; an item is right where the int64 groups are equal.

    Works on a few queries at a time, so memory is O(N), not O(Q N). Products are taken in float64 and compared in
    float32: equal pairs stay equal wherever they stand in a chunk. ValueError for a query without a right item.
    """
    similarities = (chunk.float() for chunk in _products(query_QD, item_ND))
    return _summarise(similarities, query_group_Q, item_group_N, recall_at)


def retrieval_from_similarity(
    similarity_QN: torch.Tensor,
    query_group_Q: torch.Tensor,
    item_group_N: torch.Tensor,
    *,
    recall_at: Sequence[int] = RECALL_AT,
) -> RetrievalMetrics:
    """The same from a given matrix. Raises RunFailed naming the first query with a NaN."""
    broken_Q = similarity_QN.isnan().any(dim=1)
    if bool(broken_Q.any()):
        query = int(broken_Q.nonzero()[0, 0])
        raise RunFailed(
            f"the similarities of query {query} hold NaN, which has no rank; expected numbers; look at its embedding"
        )
    return _summarise(iter([similarity_QN]), query_group_Q, item_group_N, recall_at)


def refuse_non_finite(x_ND: torch.Tensor, kind: str, names: Sequence[str] | None) -> None:
    """Raise RunFailed naming the first row that holds NaN or infinity."""
    broken_N = ~x_ND.isfinite().all(dim=1)
    if bool(broken_N.any()):
        row = int(broken_N.nonzero()[0, 0])
        label = f"{kind} {row}" if names is None else f"{kind} {names[row]}"
        raise RunFailed(
            f"the embedding of {label} holds NaN or infinity ({int(broken_N.sum())} of {len(x_ND)} do), which has no "
            "rank; rows in a store are finite, so look at the weights and the training log first, then at its features"
        )


def _products(query_QD: torch.Tensor, item_ND: torch.Tensor) -> Iterator[torch.Tensor]:
    items_DN = item_ND.double().T
    # Of every entry of a chunk there are a float64 product, a float32 copy and some masks at a time.
    rows = max(1, _CHUNK_BYTES // (24 * max(1, len(item_ND))))
    for start in range(0, len(query_QD), rows):
        yield query_QD[start : start + rows].double() @ items_DN


def _summarise(
    similarities: Iterator[torch.Tensor],
    query_group_Q: torch.Tensor,
    item_group_N: torch.Tensor,
    recall_at: Sequence[int],
) -> RetrievalMetrics:
    places, start = [], 0
    for similarity_CN in similarities:
        group_C = query_group_Q[start : start + len(similarity_CN)]
        start += len(similarity_CN)
        right_CN = (group_C[:, None] == item_group_N[None, :]).to(similarity_CN.device)
        places.append(_places(similarity_CN, right_CN).cpu())
    if not places or start == 0:
        raise ValueError("no query to rank; an evaluation needs at least one text with its window")
    above_Q, tied_wrong_Q, tied_right_Q = torch.cat(places).double().unbind(dim=1)
    rank_Q = 1 + above_Q + tied_wrong_Q / (tied_right_Q + 1)
    return RetrievalMetrics(
        recall={k: float(_found_within(k, above_Q, tied_wrong_Q, tied_right_Q).mean()) for k in recall_at},
        median_rank=float(rank_Q.quantile(0.5)) if len(rank_Q) < 2**24 else float(rank_Q.median()),
        mean_rank=float(rank_Q.mean()),
        queries=len(rank_Q),
        items=len(item_group_N),
    )


def _places(similarity_CN: torch.Tensor, right_CN: torch.Tensor) -> torch.Tensor:
    """int64 (C, 3): items above the best right one, wrong ones tied with it, right ones tied with it (at least 1)."""
    if not bool(right_CN.any(dim=1).all()):
        raise ValueError("a query has no right item among the candidates, so it has no rank")
    best_C1 = similarity_CN.masked_fill(~right_CN, -math.inf).amax(dim=1, keepdim=True)
    tied_CN = similarity_CN == best_C1
    tied_C, tied_right_C = tied_CN.sum(dim=1), (tied_CN & right_CN).sum(dim=1)
    return torch.stack([(similarity_CN > best_C1).sum(dim=1), tied_C - tied_right_C, tied_right_C], dim=1)


def _found_within(
    k: int, above_Q: torch.Tensor, tied_wrong_Q: torch.Tensor, tied_right_Q: torch.Tensor
) -> torch.Tensor:
    """Probability that the best right item is among the first k when ties are put in random order."""
    missed_Q = torch.ones_like(above_Q)
    for place in range(k):
        # The `place`-th of the tied items stands within the first k, and is wrong like all before it.
        wrong_left_Q = (tied_wrong_Q - place).clamp(min=0)
        reached_Q = above_Q + place < k
        missed_Q = torch.where(reached_Q, missed_Q * wrong_left_Q / (wrong_left_Q + tied_right_Q), missed_Q)
    return 1 - missed_Q


def chance_recall(k: int, items: int, queries: int, *, right: int = 1, confidence: float = 0.99) -> Chance:
    """R@k of random rankings of `items` candidates of which `right` are right, over `queries` queries.

    A random ranking misses with probability C(items - right, k) / C(items, k) (hypergeometric), so the number of found
    queries is binomial; the interval is its central part. It takes the queries as independent: where many windows look
    alike (those of one video) results scatter more than this.
    """
    if min(k, items, queries, right) < 1 or right > items:
        raise ValueError(f"chance needs positive counts and right <= items, got {k=}, {items=}, {queries=}, {right=}")
    within = min(k, items)
    level = 1 - math.comb(items - right, within) / math.comb(items, within)
    tail = (1 - confidence) / 2
    return Chance(
        level,
        _binomial_quantile(tail, queries, level) / queries,
        _binomial_quantile(1 - tail, queries, level) / queries,
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
