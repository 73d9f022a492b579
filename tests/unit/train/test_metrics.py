"""Retrieval metrics against brute force over all orders of the ties, and chance against simulation."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import train.metrics
from shared.errors import RunFailed
from train.metrics import (
    chance_recall,
    retrieval,
    retrieval_both_ways,
    retrieval_from_similarity,
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
    assert perfect.recall == {1: 1.0, 5: 1.0, 10: 1.0}
    assert (perfect.median_rank, perfect.mean_rank, perfect.queries, perfect.items) == (1.0, 1.0, 20, 20)
    worst = retrieval_from_similarity(-torch.eye(20), torch.arange(20), torch.arange(20))
    assert worst.recall == {1: 0.0, 5: 0.0, 10: 0.0}
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


def test_both_ways_with_several_texts_a_window_and_windows_without():
    video = torch.eye(4)
    text = torch.stack([video[0], video[0], video[2], video[1]])
    window = torch.tensor([0, 0, 1, 1])
    both = retrieval_both_ways(video, text, window, recall_at=(1, 2))
    forth, back = both["text_to_video"], both["video_to_text"]
    assert (forth.queries, forth.items, back.queries, back.items) == (4, 4, 2, 4)
    assert forth.recall[1] == pytest.approx(3 / 4)
    assert back.recall == {1: 1.0, 2: 1.0}


def test_chunks_and_order_of_items_change_nothing(monkeypatch):
    draw = torch.Generator().manual_seed(3)
    video = torch.nn.functional.normalize(torch.randn(200, 16, generator=draw), dim=1)
    video[100:] = video[:100]
    text = video + 0.3 * torch.randn(200, 16, generator=draw)
    whole = retrieval_both_ways(video, text, torch.arange(200))
    order = torch.randperm(200, generator=draw)
    shuffled = retrieval_both_ways(video[order], text, order.argsort())
    monkeypatch.setattr(train.metrics, "_CHUNK_BYTES", 24 * 200 * 7)
    assert retrieval_both_ways(video, text, torch.arange(200)) == whole
    assert shuffled["text_to_video"] == whole["text_to_video"]
    assert 0.2 < whole["text_to_video"].recall[1] <= 0.5


def test_a_collapsed_model_scores_chance():
    metrics = retrieval_both_ways(torch.ones(50, 3), torch.ones(50, 3), torch.arange(50))
    for direction in metrics.values():
        for k, share in direction.recall.items():
            assert share == pytest.approx(k / 50)
        assert direction.median_rank == 25.5


def test_nan_is_refused_by_name():
    video, text = torch.ones(3, 2), torch.ones(3, 2)
    text[1, 0] = math.nan
    with pytest.raises(RunFailed, match=r"text kettle@3\.5.*1 of 3"):
        retrieval_both_ways(video, text, torch.arange(3), text_names=["a", "kettle@3.5", "c"])
    with pytest.raises(RunFailed, match="window 1"):
        retrieval_both_ways(text, video, torch.arange(3))
    similarity = torch.eye(3)
    similarity[2, 0] = math.nan
    with pytest.raises(RunFailed, match="query 2"):
        retrieval_from_similarity(similarity, torch.arange(3), torch.arange(3))


def test_a_query_without_a_right_item_is_a_bug():
    with pytest.raises(ValueError, match="no right item"):
        retrieval(torch.ones(1, 2), torch.ones(2, 2), torch.tensor([5]), torch.arange(2))
    with pytest.raises(ValueError, match="no query"):
        retrieval(torch.ones(0, 2), torch.ones(2, 2), torch.arange(0), torch.arange(2))


def test_chance_level_is_hypergeometric_and_its_interval_binomial():
    chance = chance_recall(10, items=100, queries=100)
    assert chance.level == pytest.approx(0.1)
    below = [sum(math.comb(100, i) * 0.1**i * 0.9 ** (100 - i) for i in range(k + 1)) for k in range(101)]
    first = [next(k for k in range(101) if below[k] >= share) / 100 for share in (0.005, 0.995)]
    assert [chance.low, chance.high] == first == [0.03, 0.18]
    several = chance_recall(2, items=5, queries=10, right=2)
    assert several.level == pytest.approx(1 - (3 / 5) * (2 / 4))
    everything = chance_recall(10, items=5, queries=7)
    assert (everything.level, everything.low, everything.high) == (1.0, 1.0, 1.0)


def test_random_rankings_fall_into_the_interval_as_often_as_promised():
    draw = torch.Generator().manual_seed(0)
    chance = chance_recall(5, items=40, queries=60, confidence=0.9)
    inside = 0
    for _ in range(300):
        similarity = torch.rand(60, 40, generator=draw)
        target = torch.arange(60) % 40
        inside += chance.low <= retrieval_from_similarity(similarity, target, torch.arange(40)).recall[5] <= chance.high
    assert 0.88 <= inside / 300 <= 0.99


def test_chance_of_a_large_evaluation_is_quick_and_tight():
    chance = chance_recall(10, items=100_000, queries=100_000)
    assert chance.level == pytest.approx(1e-4)
    assert 0 <= chance.low < chance.level < chance.high < 3e-4


def test_chance_refuses_counts_that_mean_nothing():
    with pytest.raises(ValueError, match="positive counts"):
        chance_recall(1, items=0, queries=3)
