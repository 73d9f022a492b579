"""Ranks get their share of the long windows, by an arrangement that knows no ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.order.balance import balanced


@pytest.fixture(scope="module")
def corpus():
    """20,000 videos of 1 to 40 windows, rows log-normal around 8 and cut at 64."""
    random = np.random.RandomState(0)
    count_V = np.minimum(random.geometric(0.1, 20_000), 40)
    video_W = np.repeat(np.arange(20_000), count_V)
    return video_W, np.clip(random.lognormal(2, 0.9, len(video_W)), 1, 64).astype(int)


def greatest_over_mean(order, rows_W, worlds, steps):
    """(steps, worlds): rows of the rank that has most, over the mean of the ranks."""
    spread = []
    for step in range(steps):
        rows_B = rows_W[order.batch(step).window_B]
        parts = [rows_B.reshape(world, -1).sum(axis=1) for world in worlds]
        spread.append([part_W.max() / part_W.mean() for part_W in parts])
    return np.array(spread)


@pytest.mark.parametrize(
    ("unit", "buckets", "batch_size", "worlds"),
    [
        ("video", None, 768, (2, 3, 4, 8)),
        ("window", None, 768, (2, 3, 4, 8)),
        ("video", {"budget": 4096, "multiple": 16}, 256, (2, 4, 8)),
    ],
)
def test_ranks_do_equal_work_on_a_long_tailed_corpus(make, corpus, unit, buckets, batch_size, worlds):
    """In every one of 1,500 batches, with 96 or more samples a rank, or down to 8 of one length class."""
    video_W, rows_W = corpus
    order = make(video_W=video_W, rows_W=rows_W, unit=unit, buckets=buckets, batch_size=batch_size)
    assert (greatest_over_mean(order, rows_W, worlds, 1500).max(axis=0) <= 1.05).all()


@given(st.lists(st.integers(0, 100), min_size=1, max_size=300))
def test_it_is_a_rearrangement_that_depends_on_lengths_alone(lengths):
    length_B = np.array(lengths)
    place_B = balanced(length_B)
    assert sorted(place_B.tolist()) == list(range(len(lengths)))
    assert balanced(length_B * 3 + 1).tolist() == place_B.tolist()


def test_the_longest_are_dealt_to_halves_by_the_thue_morse_sequence():
    place_B = np.argsort(balanced(np.arange(16)[::-1]))
    assert (place_B >= 8).astype(int).tolist() == [0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0]
