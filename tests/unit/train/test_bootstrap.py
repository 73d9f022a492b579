"""Intervals against resamples written out by hand, and against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import train.bootstrap
from train.bootstrap import intervals, resample_counts
from train.metrics import Pairs, rank_queries, summarise


def ranks_of(similarity_QN):
    number = torch.arange(len(similarity_QN))
    return rank_queries(similarity_QN, torch.eye(similarity_QN.shape[1]), Pairs(number, number))


def test_every_video_is_drawn_as_often_as_any_other():
    counts_RV = resample_counts(range(2000), 5, 3)
    assert (counts_RV.sum(axis=1) == 5).all()
    np.testing.assert_allclose(counts_RV.mean(axis=0), 1, atol=0.1)
    assert counts_RV.var() == pytest.approx(0.8, abs=0.1)  # of a binomial of 5 draws at 1/5


def test_intervals_are_those_of_resampled_videos():
    """Videos of 1, 3, 2 and 6 queries, so that resamples have even and odd numbers of them."""
    draw = torch.Generator().manual_seed(1)
    place_Q = np.repeat(np.arange(4), [1, 3, 2, 6])
    ranks, video_Q = ranks_of(torch.rand(12, 12, generator=draw)), torch.from_numpy(place_Q + 40)
    found = intervals(ranks, video_Q, (1, 5), resamples=400, confidence=0.9, seed=7)
    assert found == intervals(ranks, video_Q, (1, 5), resamples=400, confidence=0.9, seed=7)
    assert found != intervals(ranks, video_Q, (1, 5), resamples=400, confidence=0.9, seed=8)
    # By hand: every resample as a list of queries.
    counts = resample_counts(range(400), 4, 7)
    rank_Q, hit_Q = ranks.expected().numpy(), ranks.found_within(5).numpy()
    queries = [[q for v in range(4) for _ in range(row[v]) for q in np.flatnonzero(place_Q == v)] for row in counts]
    assert {len(one) % 2 for one in queries} == {0, 1}
    for name, values in (
        ("R@5", [hit_Q[q].mean() for q in queries]),
        ("MedR", [np.median(rank_Q[q]) for q in queries]),
        ("MeanR", [rank_Q[q].mean() for q in queries]),
    ):
        assert found[name] == pytest.approx(tuple(np.quantile(values, [0.05, 0.95])))
        for confidence in np.linspace(0.05, 0.95, 19):
            again = intervals(ranks, video_Q, (1, 5), resamples=400, confidence=confidence, seed=7)
            edges = [(1 - confidence) / 2, (1 + confidence) / 2]
            assert again[name] == pytest.approx(tuple(np.quantile(values, edges)))


def test_intervals_do_not_depend_on_how_many_resamples_are_held(monkeypatch):
    draw = torch.Generator().manual_seed(2)
    ranks, video_Q = ranks_of(torch.rand(30, 30, generator=draw)), torch.arange(30) % 11
    whole = intervals(ranks, video_Q, (1, 5), resamples=50, confidence=0.95)
    monkeypatch.setattr(train.bootstrap, "_ENTRIES", 100)
    assert intervals(ranks, video_Q, (1, 5), resamples=50, confidence=0.95) == whole


def test_an_interval_covers_what_it_estimates_about_as_often_as_it_says():
    """Queries whose hits are coins of probability 0.3, in videos of two alike: the true R@1 is 0.3."""
    draw = torch.Generator().manual_seed(3)
    covered = 0
    for _ in range(100):
        hit_V = (torch.rand(80, generator=draw) < 0.3).repeat_interleave(2)
        similarity = torch.zeros(160, 2)
        similarity[:, 0], similarity[:, 1] = hit_V.float(), (~hit_V).float()
        pairs = Pairs(torch.arange(160), torch.zeros(160, dtype=torch.int64))
        ranks = rank_queries(similarity, torch.eye(2), pairs)
        assert summarise(ranks).recall[1] == hit_V.double().mean()
        low, high = intervals(ranks, torch.arange(160) // 2, (1,), resamples=200, confidence=0.9)["R@1"]
        covered += low <= 0.3 <= high
    assert 80 <= covered <= 98
