"""Chance against exact sums and simulation."""

from __future__ import annotations

import math

import pytest
import torch

from train.chance import chance_of
from train.metrics import retrieval_from_similarity


def chance_recall(k, items, queries, right=1, confidence=0.99):
    """Of queries with the same number of right items."""
    return chance_of(torch.full((queries,), right), k, items, confidence=confidence)


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


def test_chance_of_queries_with_different_numbers_of_right_items():
    chance = chance_of(torch.tensor([1, 1, 2, 4]), 2, 8)
    misses = [math.comb(8 - p, 2) / math.comb(8, 2) for p in (1, 1, 2, 4)]
    assert chance.level == pytest.approx(1 - sum(misses) / 4)
