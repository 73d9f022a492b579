"""Retrieval metrics against brute force over all orders of the ties."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

import train.metrics
from shared.errors import RunFailed
from train.metrics import (
    Pairs,
    rank_queries,
    refuse_non_finite,
    retrieval,
    retrieval_from_similarity,
    summarise,
)


def test_half_right_half_collapsed_has_recall_50_5_percent():
    """The example on which a published function gives 2 %: 50 of 100 queries right, 50 see all items alike."""
    similarity = torch.eye(100)
    similarity[50:] = 0
    metrics = retrieval_from_similarity(similarity, torch.arange(100), torch.arange(100))
    assert metrics.recall[1] == pytest.approx(0.505)
    assert metrics.recall[10] == pytest.approx(0.55)
    assert metrics.mean_rank == pytest.approx((50 + 50 * 50.5) / 100)
    assert metrics.median_rank == pytest.approx((1 + 50.5) / 2)


def test_perfect_and_worst():
    perfect = retrieval_from_similarity(torch.eye(20), torch.arange(20), torch.arange(20))
    assert perfect.recall == {1: 1.0, 5: 1.0, 10: 1.0, 50: 1.0}
    assert (perfect.median_rank, perfect.mean_rank, perfect.queries, perfect.items) == (1.0, 1.0, 20, 20)
    worst = retrieval_from_similarity(-torch.eye(20), torch.arange(20), torch.arange(20))
    assert worst.recall == {1: 0.0, 5: 0.0, 10: 0.0, 50: 1.0}
    assert worst.median_rank == 20


@pytest.mark.parametrize("seed", range(8))
def test_equals_the_mean_over_all_orders_of_the_items(seed):
    draw = torch.Generator().manual_seed(seed)
    similarity = torch.randint(0, 3, (4, 6), generator=draw).float()
    item_group = torch.tensor([0, 1, 2, 3, 0, 1])
    ranks = []
    for order in itertools.permutations(range(6)):
        shuffled, groups = similarity[:, order], item_group[list(order)]
        sorted_groups = groups[shuffled.argsort(dim=1, descending=True, stable=True)]
        ranks.append((sorted_groups == torch.arange(4)[:, None]).int().argmax(dim=1) + 1)
    brute = torch.stack(ranks).double()
    metrics = retrieval_from_similarity(similarity, torch.arange(4), item_group, recall_at=(1, 2, 3))
    for k, share in metrics.recall.items():
        assert share == pytest.approx((brute <= k).double().mean().item(), abs=1e-12)
    assert metrics.mean_rank == pytest.approx(brute.mean().item())
    assert metrics.median_rank == pytest.approx(brute.mean(0).quantile(0.5).item())


def test_groups_become_pairs():
    pairs = Pairs.of_groups(torch.tensor([3, 1, 9]), torch.tensor([1, 3, 3, 1]))
    assert list(zip(pairs.query_P.tolist(), pairs.item_P.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 0), (1, 3)]
    again = Pairs.of(torch.tensor([1, 0, 1, 0, 1]), torch.tensor([3, 2, 0, 1, 3]))
    assert torch.equal(again.item_P, pairs.item_P)
    assert torch.equal(again.query_P, pairs.query_P)


def test_chunks_and_order_of_items_change_nothing(monkeypatch):
    draw = torch.Generator().manual_seed(3)
    video = torch.nn.functional.normalize(torch.randn(200, 16, generator=draw), dim=1)
    video[100:] = video[:100]
    text = video + 0.3 * torch.randn(200, 16, generator=draw)
    number = torch.arange(200)
    for dual_softmax in (None, 0.1):
        whole = ranked(text, video, number, number, dual_softmax)
        order = torch.randperm(200, generator=draw)
        shuffled = ranked(text, video[order], number, order, dual_softmax)
        with monkeypatch.context() as patch:
            patch.setattr(train.metrics, "_CHUNK_BYTES", 32 * 200 * 7)
            assert ranked(text, video, number, number, dual_softmax) == whole
        assert shuffled == whole
        assert 0.2 < whole.recall[1] <= 0.5


def ranked(query, item, query_group, item_group, dual_softmax):
    pairs = Pairs.of_groups(query_group, item_group)
    return summarise(rank_queries(query, item, pairs, dual_softmax=dual_softmax))


def test_dual_softmax_equals_its_formula():
    draw = torch.Generator().manual_seed(5)
    query, item = torch.randn(30, 8, generator=draw), torch.randn(40, 8, generator=draw)
    similarity = query.double() @ item.double().T
    weighted = similarity * (similarity / 0.5).softmax(dim=0)
    group = torch.arange(40)
    expected = retrieval_from_similarity(weighted.float(), group[:30], group)
    assert ranked(query, item, group[:30], group, 0.5) == expected
    assert ranked(query, item, group[:30], group, None) != expected


@pytest.mark.parametrize(("scale", "temperature"), [(1.0, 0.002), (12.0, 1.0), (30.0, 1.0)])
def test_dual_softmax_ranks_also_what_a_double_cannot_hold(scale, temperature):
    """Weights down to exp(-10,000), all similarities of both signs: the order is that of their logarithms."""
    draw = torch.Generator().manual_seed(5)
    query, item = (scale * F.normalize(torch.randn(60, 32, generator=draw), dim=1) * 5 for _ in range(2))
    similarity = query.double() @ item.double().T
    logarithm = similarity.abs().log() + (similarity / temperature).log_softmax(dim=0)
    assert logarithm.min() < -745
    places = [
        sorted(range(60), key=lambda n, s=s, w=w: (s[n] > 0, w[n] if s[n] > 0 else -w[n]), reverse=True).index(query)
        for query, (s, w) in enumerate(zip(similarity.tolist(), logarithm.tolist(), strict=True))
    ]
    pairs = Pairs.of_groups(torch.arange(60), torch.arange(60))
    ranks = rank_queries(query, item, pairs, dual_softmax=temperature)
    assert ranks.expected().tolist() == [place + 1 for place in places]


def test_a_collapsed_model_scores_chance():
    metrics = retrieval(torch.ones(50, 3), torch.ones(50, 3), torch.arange(50), torch.arange(50))
    for k, share in metrics.recall.items():
        assert share == pytest.approx(k / 50)
    assert metrics.median_rank == 25.5


def test_nan_is_refused_by_name():
    text = torch.ones(3, 2)
    text[1, 0] = math.nan
    with pytest.raises(RunFailed, match=r"text kettle@3\.5.*1 of 3"):
        refuse_non_finite(text, "text", ["a", "kettle@3.5", "c"].__getitem__)
    with pytest.raises(RunFailed, match="window 1"):
        refuse_non_finite(text, "window")
    similarity = torch.eye(3)
    similarity[2, 0] = math.nan
    with pytest.raises(RunFailed, match="query 2"):
        retrieval_from_similarity(similarity, torch.arange(3), torch.arange(3))
    with pytest.raises(RunFailed, match="query 1"):
        retrieval(text, torch.ones(3, 2), torch.arange(3), torch.arange(3))


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_by_a_hundred_thousand_in_two_gib():
    code = """
import resource, torch
from train.metrics import Pairs, rank_queries, summarise
torch.set_num_threads(2)
draw = torch.Generator().manual_seed(0)
video = torch.nn.functional.normalize(torch.randn(100_000, 512, generator=draw), dim=1)
text = video + torch.randn(100_000, 512, generator=draw) * 0.2
number = torch.arange(100_000)
found = summarise(rank_queries(text, video, Pairs(number, number)))
print(found.recall[10], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    recall, peak_kib = (float(word) for word in done.stdout.split())
    assert recall > 0.5
    assert peak_kib < 2 * 2**20


def test_a_query_without_a_right_item_is_a_bug():
    with pytest.raises(ValueError, match="no right item"):
        retrieval(torch.ones(1, 2), torch.ones(2, 2), torch.tensor([5]), torch.arange(2))
    with pytest.raises(ValueError, match="no query"):
        retrieval(torch.ones(0, 2), torch.ones(2, 2), torch.arange(0), torch.arange(2))
