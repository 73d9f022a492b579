"""Batches of one length class, within the budget, at their bound."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from shared.errors import RequestError
from train.order import BucketsConfig, OrderConfig, check_ranks
from train.order.classes import length_classes


@contextmanager
def suppress_too_few():
    """Hypothesis tries another example where this one has not one batch."""
    try:
        yield
    except RequestError as error:
        if "not one batch can be filled" not in str(error):
            raise
        reject()


@settings(max_examples=60, deadline=None)
@given(
    windows=st.lists(st.tuples(st.integers(0, 25), st.integers(1, 40)), min_size=1, max_size=200),
    unit=st.sampled_from(["video", "window"]),
    remainder=st.sampled_from(["drop", "fill"]),
    by=st.sampled_from(["rows", "tokens"]),
    multiple=st.integers(1, 3),
    seed=st.integers(0, 3),
)
def test_each_batch_is_of_one_class_and_each_unit_comes_once(make, windows, unit, remainder, by, multiple, seed):
    video_W, length_W = (np.array(values) for values in zip(*sorted(windows), strict=True))
    longest = min(int(length_W.max()), 30)
    with suppress_too_few():
        order = make(
            video_W=video_W, rows_W=length_W, longest=longest, unit=unit, remainder=remainder, seed=seed, batch_size=6,
            buckets={"by": by, "budget": 5 * 30, "multiple": multiple},
        )  # fmt: skip
    counted_W = np.minimum(length_W, longest)
    bounds = [shape.rows or shape.tokens for shape in order.shapes()]
    for epoch in range(2):
        seen = []
        for step in range(order.steps_before(epoch), order.steps_before(epoch + 1)):
            batch = order.batch(step)
            bound = getattr(batch, by)
            below = max((other for other in bounds if other < bound), default=0)
            assert ((below < counted_W[batch.window_B]) & (counted_W[batch.window_B] <= bound)).all()
            assert len(batch) % multiple == 0
            assert len(batch) == min(6, 150 // bound) // multiple * multiple
            numbers = batch.window_B if unit == "window" else video_W[batch.window_B]
            assert len(set(numbers.tolist())) == len(batch)
            seen += [(number, bound) for number in numbers.tolist()]
        times = {unit_: seen.count(unit_) for unit_ in set(seen)}
        assert all(count == 1 for count in times.values()) or remainder == "fill"
        assert len({number for number, _ in seen}) == len(times), "in one class only"
        if epoch == 0:
            units = len(length_W) if unit == "window" else len(np.unique(video_W))
            assert len(times) == units - order.left_out


@settings(max_examples=60, deadline=None)
@given(
    windows=st.lists(st.tuples(st.integers(0, 8), st.integers(1, 16)), min_size=20, max_size=200),
    seed=st.integers(0, 3),
)
def test_windows_of_a_class_are_dealt_evenly(make, windows, seed):
    video_W, rows_W = (np.array(values) for values in zip(*sorted(windows), strict=True))
    rows_W[0] = 16
    order = make(
        video_W=video_W, rows_W=rows_W, unit="window", seed=seed, batch_size=4,
        buckets={"budget": 64, "multiple": 1, "bounds": [4, 16]},
    )  # fmt: skip
    batches = [order.batch(step) for step in range(order.steps_before(1))]
    for bound in (4, 16):
        mine = [batch.window_B for batch in batches if batch.rows == bound]
        kept_V = sum((np.bincount(video_W[window_B], minlength=9) for window_B in mine), np.zeros(9, int))
        for window_B in mine:
            assert (np.bincount(video_W[window_B], minlength=9) <= -(-kept_V // len(mine))).all()


def test_epochs_of_one_window_a_video_differ_in_length(make):
    buckets = {"budget": 240, "multiple": 4, "bounds": [3, 8, 60]}
    order = make(buckets=buckets, batch_size=8)
    lengths = {order.steps_before(epoch + 1) - order.steps_before(epoch) for epoch in range(40)}
    assert len(lengths) > 1
    late = make(buckets=buckets, batch_size=8)
    assert late.steps_before(40) == order.steps_before(40)


@pytest.mark.parametrize("unit", ["video", "window"])
def test_no_window_is_of_a_length_that_is_never_trained_on(make, unit):
    """Too few short ones and too few long ones for a batch of their own."""
    rows_W = np.random.RandomState(0).permutation([1] * 3 + [7] * 90 + [20] * 90 + [60] * 2)
    order = make(
        video_W=np.arange(185) // 2, rows_W=rows_W, unit=unit, batch_size=16, buckets={"budget": 480, "multiple": 4}
    )
    assert [(shape.samples, shape.rows) for shape in order.shapes()] == [(16, 8), (8, 60)]
    seen = {window for step in range(order.steps_before(60)) for window in order.batch(step).window_B.tolist()}
    assert seen == set(range(185))


def test_classes_come_mixed_and_anew_in_each_epoch(make):
    order = make(unit="window", buckets={"budget": 240, "multiple": 2, "bounds": [2, 8, 60]}, batch_size=8)
    steps = order.steps_before(1)
    epochs = [[order.batch(step + epoch * steps).rows for step in range(steps)] for epoch in range(3)]
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert epochs[0] not in (sorted(epochs[0]), sorted(epochs[0], reverse=True), epochs[1])


def test_bounds_are_powers_of_two_up_to_the_longest():
    classes = length_classes(BucketsConfig(budget=256, multiple=4), batch_size=50, longest=20)
    assert classes.bounds_C.tolist() == [1, 2, 4, 8, 16, 20]
    assert classes.sizes_C == (48, 48, 48, 32, 16, 12)
    assert classes.of(np.array([1, 2, 3, 16, 17, 20])).tolist() == [0, 1, 2, 4, 5, 5]
    exact = length_classes(BucketsConfig(budget=256, multiple=4), batch_size=50, longest=16)
    assert exact.bounds_C.tolist() == [1, 2, 4, 8, 16]
    given_bounds = length_classes(BucketsConfig(budget=256, multiple=4, bounds=(5, 64)), batch_size=50, longest=9)
    assert given_bounds.bounds_C.tolist() == [5, 9]


@pytest.mark.parametrize(
    ("samples", "kept"),
    [
        ([9, 9, 9, 9, 9], [1, 2, 4, 8, 16]),
        ([7, 0.5, 0.5, 9, 9], [4, 8, 16]),
        ([9, 9, 9, 9, 3], [1, 2, 4, 16]),
        ([9, 9, 3, 3, 1.5], [1, 16]),
        ([0, 0, 0, 0, 3], [16]),
    ],
)
def test_a_class_too_small_for_a_batch_joins_the_next(samples, kept):
    classes = length_classes(BucketsConfig(budget=128, multiple=8), batch_size=8, longest=16)
    found = classes.worth_a_batch(np.array(samples))
    assert found.bounds_C.tolist() == kept
    assert len(found.sizes_C) == len(kept)


@pytest.mark.parametrize(
    ("buckets", "batch_size", "message"),
    [
        ({"budget": 100}, 64, r"budget=100 rows holds 5 of the longest windows \(20 rows\).*at least 160"),
        ({"budget": 999, "bounds": (4, 16)}, 64, r"bounds ends with 16, .*add 20 to it, or set data\.max_rows=16"),
        ({"budget": 999, "by": "tokens", "bounds": (4,)}, 64, r"set data\.max_tokens=4"),
        ({"budget": 999}, 7, r"x\.batch_size=7 is less than x\.order\.buckets\.multiple=8.*at most 7"),
    ],
)
def test_what_cannot_be_filled_is_refused_with_what_to_set(buckets, batch_size, message):
    with pytest.raises(RequestError, match=message):
        length_classes(BucketsConfig(**buckets), batch_size=batch_size, longest=20, where="x.")


def test_classes_too_small_for_any_batch_are_refused(make):
    with pytest.raises(RequestError, match=r"its length classes have 40 of 48 that they need: lower batch_size or"):
        make(buckets={"budget": 6000, "multiple": 48, "bounds": [60]}, batch_size=48)


def test_ranks_must_divide_the_multiple():
    config = OrderConfig(buckets=BucketsConfig(budget=800))
    check_ranks(config, 7, 4)
    with pytest.raises(RequestError, match=r"^order\.buckets\.multiple=8: 3 ranks do not divide it.*multiple=9$"):
        check_ranks(config, 7, 3)
    with pytest.raises(RequestError, match=r"a\.batch_size=8$"):
        check_ranks(OrderConfig(), 7, 4, "a.")
