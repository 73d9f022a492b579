"""Retrieval metrics whose ties are expectations.

A query's rank is the place of its best positive when equal similarities are put in random order: with g negatives above
it, m negatives and p positives at the same similarity, the expected rank is 1 + g + m / (p + 1), and R@k is the
probability that the rank is at most k. So a collapsed model scores exactly chance, and the order of the items, chunk
sizes and the number of ranks change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from shared.errors import RunFailed

RECALL_AT = (1, 5, 10, 50)
_CHUNK_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Pairs:
    """Which items are right for which queries: int64 (P,) each, sorted by query, every pair once."""

    query_P: torch.Tensor
    item_P: torch.Tensor

    @classmethod
    def of(cls, query_P: torch.Tensor, item_P: torch.Tensor) -> Pairs:
        """From pairs in any order, with repetitions."""
        unique_P2 = torch.unique(torch.stack([query_P, item_P], dim=1), dim=0)
        return cls(*unique_P2.T.contiguous())

    @classmethod
    def of_groups(cls, query_group_Q: torch.Tensor, item_group_N: torch.Tensor) -> Pairs:
        """A query's right items are those of its group (int64)."""
        order_N = item_group_N.argsort(stable=True)
        sorted_N = item_group_N[order_N]
        first_Q = torch.searchsorted(sorted_N, query_group_Q)
        count_Q = torch.searchsorted(sorted_N, query_group_Q, right=True) - first_Q
        query_P = torch.arange(len(query_group_Q), device=count_Q.device).repeat_interleave(count_Q)
        within_P = torch.arange(len(query_P), device=count_Q.device) - (count_Q.cumsum(0) - count_Q)[query_P]
        return cls(query_P, order_N[first_Q[query_P] + within_P])


@dataclass(frozen=True)
class Ranks:
    """Where the best right item of each query stands; float64 (Q,) on the CPU.

    above_Q: items above it. tied_wrong_Q, tied_right_Q: wrong and right ones at its similarity (itself among them).
    right_Q: right items in all. items: candidates of a query.
    """

    above_Q: torch.Tensor
    tied_wrong_Q: torch.Tensor
    tied_right_Q: torch.Tensor
    right_Q: torch.Tensor
    items: int

    def expected(self) -> torch.Tensor:
        """float64 (Q,): expected ranks, counted from 1."""
        return 1 + self.above_Q + self.tied_wrong_Q / (self.tied_right_Q + 1)

    def found_within(self, k: int) -> torch.Tensor:
        """float64 (Q,): probability that the best right item is among the first k when ties are in random order."""
        missed_Q = torch.ones_like(self.above_Q)
        for place in range(k):
            # The `place`-th of the tied items stands within the first k, and is wrong like all before it.
            wrong_left_Q = (self.tied_wrong_Q - place).clamp(min=0)
            reached_Q = self.above_Q + place < k
            missed_Q = torch.where(reached_Q, missed_Q * wrong_left_Q / (wrong_left_Q + self.tied_right_Q), missed_Q)
        return 1 - missed_Q


@dataclass(frozen=True)
class RetrievalMetrics:
    """recall: k -> expected share in [0, 1] of queries found within k. Ranks count from 1. queries, items: counts."""

    recall: dict[int, float]
    median_rank: float
    mean_rank: float
    queries: int
    items: int


def summarise(ranks: Ranks, recall_at: Sequence[int] = RECALL_AT) -> RetrievalMetrics:
    rank_Q = ranks.expected()
    return RetrievalMetrics(
        recall={k: float(ranks.found_within(k).mean()) for k in recall_at},
        median_rank=median(rank_Q),
        mean_rank=float(rank_Q.mean()),
        queries=len(rank_Q),
        items=ranks.items,
    )


def median(x_N: torch.Tensor) -> float:
    """The mean of the two middle values where their number is even."""
    ordered_N = x_N.sort().values
    return float(ordered_N[[(len(x_N) - 1) // 2, len(x_N) // 2]].mean())


def rank_queries(
    query_QD: torch.Tensor, item_ND: torch.Tensor, pairs: Pairs, *, dual_softmax: float | None = None
) -> Ranks:
    """Rank all items for every query by dot product.

    dual_softmax: similarities s are first multiplied with the softmax of s / dual_softmax over all queries (Cheng et
    al. 2021, arXiv:2109.04290, equation 5, used at inference): a query then profits from what other queries do not
    claim, so all must be known at once, and each is taken to have one match.

    Works on a few queries at a time, so memory is O(N), not O(Q N). Products are taken in float64 and compared in
    float32: equal pairs stay equal wherever they stand in a chunk. ValueError for a query without a right item,
    RunFailed naming the first query with a similarity that is NaN.
    """
    if dual_softmax is None:
        return _rank(_products(query_QD, item_ND, lambda x: x), pairs, len(query_QD), len(item_ND))
    claimed_N = torch.full((len(item_ND),), -math.inf, dtype=torch.float64, device=item_ND.device)
    for chunk_CN in _products(query_QD, item_ND, lambda x: x):
        claimed_N = torch.logaddexp(claimed_N, (chunk_CN / dual_softmax).logsumexp(dim=0))
    weighted = _products(query_QD, item_ND, lambda x: _in_order(x, x / dual_softmax - claimed_N))
    return _rank(weighted, pairs, len(query_QD), len(item_ND))


def retrieval(
    query_QD: torch.Tensor,
    item_ND: torch.Tensor,
    query_group_Q: torch.Tensor,
    item_group_N: torch.Tensor,
    *,
    recall_at: Sequence[int] = RECALL_AT,
) -> RetrievalMetrics:
    """`rank_queries`, where an item is right for a query of the same group (int64), summarised."""
    pairs = Pairs.of_groups(query_group_Q, item_group_N)
    return summarise(rank_queries(query_QD, item_ND, pairs), recall_at)


def retrieval_from_similarity(
    similarity_QN: torch.Tensor,
    query_group_Q: torch.Tensor,
    item_group_N: torch.Tensor,
    *,
    recall_at: Sequence[int] = RECALL_AT,
) -> RetrievalMetrics:
    """The same from a given matrix."""
    pairs = Pairs.of_groups(query_group_Q, item_group_N)
    return summarise(_rank(iter([similarity_QN]), pairs, *similarity_QN.shape), recall_at)


def refuse_non_finite(x_ND: torch.Tensor, kind: str, name: Callable[[int], str] = str) -> None:
    """Raise RunFailed naming the first row that holds NaN or infinity. name: of a row; asked for that one alone."""
    broken_N = ~x_ND.isfinite().all(dim=1)
    if bool(broken_N.any()):
        row = int(broken_N.nonzero()[0, 0])
        raise RunFailed(
            f"the embedding of {kind} {name(row)} holds NaN or infinity ({int(broken_N.sum())} of {len(x_ND)} do), "
            "which has no rank; rows in a store are finite, so look at the weights and the training log first, then at "
            "its features"
        )


def _products(
    query_QD: torch.Tensor, item_ND: torch.Tensor, weigh: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[torch.Tensor]:
    """float64 (C, N): similarities of a few queries at a time."""
    items_DN = item_ND.double().T
    # Of every entry of a chunk there are two float64 products, a float32 copy and some masks at a time.
    rows = max(1, _CHUNK_BYTES // (32 * max(1, len(item_ND))))
    for start in range(0, len(query_QD), rows):
        yield weigh(query_QD[start : start + rows].double() @ items_DN)


def _rank(similarities: Iterator[torch.Tensor], pairs: Pairs, queries: int, items: int) -> Ranks:
    # In one block from the start: small ones, kept between those of the chunks, would have the heap grow with each.
    place_Q4, start = torch.empty(queries, 4, dtype=torch.float64), 0
    for similarity_CN in similarities:
        stop = start + len(similarity_CN)
        first, last = torch.searchsorted(pairs.query_P, pairs.query_P.new_tensor([start, stop])).tolist()
        right_CN = torch.zeros(similarity_CN.shape, dtype=torch.bool, device=similarity_CN.device)
        right_CN[pairs.query_P[first:last] - start, pairs.item_P[first:last]] = True
        _refuse_nan(similarity_CN, start)
        place_Q4[start:stop] = _places(similarity_CN.float(), right_CN)
        start = stop
    if start == 0:
        raise ValueError("no query to rank; an evaluation needs at least one text with its window")
    above_Q, tied_wrong_Q, tied_right_Q, right_Q = place_Q4.unbind(dim=1)
    return Ranks(above_Q, tied_wrong_Q, tied_right_Q, right_Q, items)


def _in_order(x_CN: torch.Tensor, log_weight_CN: torch.Tensor) -> torch.Tensor:
    """Numbers in the order of x exp(log_weight), which itself would be 0 for most pairs at a low temperature.

    Their size is that of log(|x|) + log_weight, bent so that all are positive.
    """
    size_CN = x_CN.abs().log_().add_(log_weight_CN)
    bent_CN = torch.where(size_CN < 0, 1 / (1 - size_CN), 1 + size_CN)
    return bent_CN.mul_(x_CN.sign())


def _refuse_nan(similarity_CN: torch.Tensor, first: int) -> None:
    broken_C = similarity_CN.isnan().any(dim=1)
    if bool(broken_C.any()):
        query = first + int(broken_C.nonzero()[0, 0])
        raise RunFailed(
            f"the similarities of query {query} hold NaN, which has no rank; expected numbers; look at its embedding"
        )


def _places(similarity_CN: torch.Tensor, right_CN: torch.Tensor) -> torch.Tensor:
    """int64 (C, 4): items above the best right one, wrong ones tied with it, right ones tied with it, right ones."""
    right_C = right_CN.sum(dim=1)
    if not bool((right_C > 0).all()):
        raise ValueError("a query has no right item among the candidates, so it has no rank")
    best_C1 = similarity_CN.masked_fill(~right_CN, -math.inf).amax(dim=1, keepdim=True)
    tied_CN = similarity_CN == best_C1
    tied_C, tied_right_C = tied_CN.sum(dim=1), (tied_CN & right_CN).sum(dim=1)
    above_C = (similarity_CN > best_C1).sum(dim=1)
    return torch.stack([above_C, tied_C - tied_right_C, tied_right_C, right_C], dim=1)
