"""Every kind of order: a batch is a function of its number, on all ranks the same, whatever was asked before."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from train.order import Selection


def test_resumed_at_every_step_of_two_epochs_is_uninterrupted(fresh, sequence):
    end = fresh().steps_before(2) + 2
    whole = sequence(fresh(), range(end))
    assert len({str(batch) for batch in whole}) == end
    for step in range(end):
        state = fresh().state(step)
        assert sequence(fresh(), range(state["step"], end)) == whole[step:]
    assert sequence(fresh(), reversed(range(end))) == whole[::-1]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_parts_of_the_ranks_make_the_same_global_batch(fresh, size):
    """Equal parts at every step, so that no rank waits, and the batch itself knows nothing of their number."""
    order = fresh()
    for step in range(order.steps_before(1) + 1):
        whole = order.batch(step)
        parts = [whole.part(rank, size) for rank in range(size)]
        assert np.concatenate([part.window_B for part in parts]).tolist() == whole.window_B.tolist()
        assert np.concatenate([part.choice_BK for part in parts]).tolist() == whole.choice_BK.tolist()
        assert {len(part) for part in parts} == {len(whole) // size}
        assert {(part.source, part.rows, part.tokens) for part in parts} == {(whole.source, whole.rows, whole.tokens)}


def test_places_and_epochs_count_alike(fresh):
    order = fresh()
    expected = [
        (epoch, within)
        for epoch in range(5)
        for within in range(order.steps_before(epoch + 1) - order.steps_before(epoch))
    ]
    assert [order.place(step) for step in range(order.steps_before(5))] == expected
    assert fresh().place(order.steps_before(4)) == (4, 0)
    assert order.epochs_at(order.steps_before(3)) == 3.0
    assert 2.0 < order.epochs_at(order.steps_before(3) - 1) < 3.0


def test_batches_have_one_of_the_shapes_that_are_told(fresh):
    order = fresh()
    shapes = set(order.shapes())
    seen = set()
    for step in range(order.steps_before(3)):
        batch = order.batch(step)
        assert batch.window_B.dtype == batch.choice_BK.dtype == np.int64
        seen.add((batch.source, len(batch), batch.rows, batch.tokens))
    assert seen <= shapes
    assert order.largest == max(len(order.batch(step)) for step in range(order.steps_before(3)))


def test_a_part_pickles_alone():
    whole = Selection(np.arange(100_000), np.zeros((100_000, 5), int), source=2, rows=8)
    part = whole.part(3, 1000)
    data = pickle.dumps(part)
    assert len(data) < 6_000
    again = pickle.loads(data)
    assert (again.source, again.rows, again.tokens) == (2, 8, None)
    assert again.window_B.tolist() == list(range(300, 400))
