"""Whose turn it is, and how often each source had one: at any step the same as counted from the first one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from train.order.turns import BLOCK, CHOICES, Alternate, Sampled

WEIGHTS = st.lists(st.sampled_from([1e-6, 0.01, 0.3, 1, 1.0, 2, 2.5, 7, 100]), min_size=1, max_size=6)


def by_quotients(weights, steps):
    """Sainte-Lague's method as it is taught: the next seat goes to the greatest weight / (2 * seats + 1)."""
    seats, chosen = [0] * len(weights), []
    for _ in range(steps):
        best = min(range(len(weights)), key=lambda k: ((2 * seats[k] + 1) / weights[k], k))
        chosen.append((best, seats[best]))
        seats[best] += 1
    return chosen


@settings(max_examples=15, deadline=None)
@given(weights=WEIGHTS)
def test_alternating_is_sainte_lagues_division_at_every_step(weights):
    turns = [Alternate(weights).block(number) for number in (0, 1)]
    sources, nths = (np.concatenate(values).tolist() for values in zip(*turns, strict=True))
    assert list(zip(sources, nths, strict=True)) == by_quotients(weights, 2 * BLOCK)


@pytest.mark.parametrize(
    ("weights", "most"), [((1, 1), 0.5), ((3, 1), 0.5), ((0.9, 0.7), 0.5), ((5, 3, 0.2), 1), ((1, 1, 1, 1, 50), 2)]
)
def test_alternating_stays_near_the_weights_at_every_step(weights, most):
    source_N = Alternate(weights).block(0).source_N
    for source, share in enumerate(np.array(weights) / sum(weights)):
        had_N = np.cumsum(source_N == source)
        assert np.abs(had_N - share * np.arange(1, BLOCK + 1)).max() <= most + 1e-9


@settings(max_examples=20, deadline=None)
@given(weights=WEIGHTS, choice=st.sampled_from(sorted(CHOICES)), seed=st.integers(0, 2**63))
def test_a_block_alone_is_what_it_is_in_the_sequence(weights, choice, seed):
    turns = CHOICES[choice](weights, seed)
    blocks = [turns.block(number) for number in range(5)]
    before_K = np.zeros(len(weights), int)
    for number, (source_N, nth_N) in enumerate(blocks):
        alone = CHOICES[choice](weights, seed).block(number)
        assert (alone.source_N == source_N).all()
        assert (alone.nth_N == nth_N).all()
        for source in range(len(weights)):
            mine = nth_N[source_N == source]
            assert mine.tolist() == list(range(before_K[source], before_K[source] + len(mine)))
            before_K[source] += len(mine)
    assert before_K.sum() == 5 * BLOCK


def test_drawn_turns_follow_weights_and_seed():
    first, other = Sampled((3, 1), 1).block(0), Sampled((3, 1), 2).block(0)
    assert (first.source_N != other.source_N).any()
    share = np.concatenate([Sampled((3, 1), 1).block(number).source_N for number in range(10)]).mean()
    assert abs(share - 0.25) < 5 * np.sqrt(0.25 * 0.75 / (10 * BLOCK))
