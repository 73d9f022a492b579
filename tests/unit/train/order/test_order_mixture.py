from __future__ import annotations

import numpy as np
import pytest

from train.order import Mixture


@pytest.mark.parametrize("choice", ["alternate", "sampled"])
def test_each_source_goes_through_its_own_order_in_turns(mixture, choice, sequence):
    order = mixture(choice)
    parts = {0: [], 1: [], 2: []}
    for batch in sequence(order, range(120)):
        parts[batch[2]].append(batch)
    alone = mixture(choice)._orders
    for source, batches in parts.items():
        assert len(batches) > 5
        expected = sequence(alone[source], range(len(batches)))
        assert batches == [(*one[:2], source, *one[3:]) for one in expected]


def test_every_batch_has_the_size_of_its_source(mixture):
    order = mixture()
    sizes = {(batch.source, len(batch)) for batch in map(order.batch, range(100))}
    assert sizes - {(0, 36), (0, 12)} == {(1, 48), (2, 12)}


def test_an_epoch_is_one_of_the_first_source(mixture):
    order, share = mixture(weights=(1, 2, 1)), 0.25
    for epoch in range(1, 4):
        steps = order.steps_before(epoch)
        assert steps == order._orders[0].steps_before(epoch) / share
        done = sum(order.batch(step).source == 0 for step in range(steps))
        assert abs(done - order._orders[0].steps_before(epoch)) <= 1


def test_the_state_covers_every_source(mixture, make):
    def state(**changes):
        orders = [make(), make(name=changes.get("name", "bb"), seed=changes.get("seed", 4))]
        return Mixture(orders, ["a", "b"], [1, changes.get("weight", 1)], changes.get("choice", "alternate"), 1).state(
            5
        )

    same = state()
    assert same["step"] == 5
    assert state() == same
    for change in ({"name": "cc"}, {"seed": 5}, {"weight": 2}, {"choice": "sampled"}):
        assert state(**change)["fingerprint"] != same["fingerprint"]
    assert same["identity"]["sources"]["b"]["set"] == "bb"


def test_more_weight_is_more_steps(mixture):
    for choice in ("alternate", "sampled"):
        order = mixture(choice)
        sources = np.bincount([order.batch(step).source for step in range(550)], minlength=3)
        assert np.abs(sources - [300, 200, 50]).max() < (2 if choice == "alternate" else 60)


@pytest.mark.parametrize("weights", [(1, 0.7, 0.1), (1, 0.8, 0.3), (0.3, 1, 1), (7, 1, 1e-6)])
def test_epochs_end_where_the_next_ones_begin_at_any_share(mixture, weights):
    """Shares that do not divide an epoch are rounded; the last step of one and the first of the next are told apart."""
    order = mixture(weights=weights)
    for epoch in range(1, 40):
        border = order.steps_before(epoch)
        assert order.place(border) == (epoch, 0)
        assert order.place(border - 1) == (epoch - 1, border - 1 - order.steps_before(epoch - 1))
