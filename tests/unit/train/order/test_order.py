from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shared.errors import RequestError
from train.order import check_batch_size

VIDEO_COUNTS = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def windows_of_epoch(order, epoch):
    return [order.batch(step).window_B for step in range(order.steps_before(epoch), order.steps_before(epoch + 1))]


def test_each_video_at_most_once_an_epoch_and_all_but_the_remainder(make, split):
    video_W = split[0]
    order, videos = make(), len(np.unique(video_W))
    assert (order.steps_before(1), order.left_out) == (videos // 12, videos % 12)
    seen_by_epoch = []
    for epoch in range(6):
        seen = video_W[np.concatenate(windows_of_epoch(order, epoch))]
        assert len(set(seen.tolist())) == len(seen) == videos - order.left_out
        seen_by_epoch.append(tuple(seen.tolist()))
    assert len(set(seen_by_epoch)) == 6
    assert len({video for seen in seen_by_epoch for video in seen}) == videos


def test_every_window_of_a_video_gets_its_turn(make):
    order = make(batch_size=40)
    windows = {window for step in range(400) for window in order.batch(step).window_B.tolist()}
    assert windows == set(range(300))


@settings(max_examples=80, deadline=None)
@given(counts=VIDEO_COUNTS, batch_size=st.integers(1, 25), seed=st.integers(0, 10))
def test_windows_are_dealt_as_evenly_as_they_can_be(make, counts, batch_size, seed):
    video_W = np.repeat(np.arange(len(counts)), counts)
    assume(len(video_W) >= batch_size)
    order = make(unit="window", batch_size=batch_size, seed=seed, video_W=video_W)
    batches = windows_of_epoch(order, 0)
    windows, steps = np.concatenate(batches), len(batches)
    assert len(set(windows.tolist())) == len(windows) == steps * batch_size
    kept_V = np.bincount(video_W[windows], minlength=len(counts))
    for batch in batches:
        assert (np.bincount(video_W[batch], minlength=len(counts)) <= -(-kept_V // steps)).all()


@settings(max_examples=80, deadline=None)
@given(
    counts=VIDEO_COUNTS,
    batch_size=st.integers(1, 25),
    seed=st.integers(0, 10),
    unit=st.sampled_from(["video", "window"]),
)
def test_a_filled_epoch_sees_everything_and_no_batch_has_a_sample_twice(make, counts, batch_size, seed, unit):
    video_W = np.repeat(np.arange(len(counts)), counts)
    units = len(counts) if unit == "video" else len(video_W)
    assume(units >= batch_size)
    order = make(unit=unit, batch_size=batch_size, seed=seed, video_W=video_W, remainder="fill")
    assert (order.left_out, order.steps_before(1)) == (0, -(-units // batch_size))
    for epoch in range(2):
        batches = windows_of_epoch(order, epoch)
        numbers = video_W[np.stack(batches)] if unit == "video" else np.stack(batches)
        assert all(len(set(batch)) == batch_size for batch in numbers.tolist())
        assert set(numbers.ravel().tolist()) == set(range(units))
        times = np.bincount(np.concatenate(batches))
        assert times.max() <= 2
        assert (times == 2).sum() == len(batches) * batch_size - units


def test_what_fills_the_last_batch_is_the_beginning_of_the_epoch(make):
    order = make(remainder="fill")
    batches = windows_of_epoch(order, 2)
    missing = 12 * len(batches) - 40
    assert missing == 8
    twice = set(batches[-1].tolist()) & set(batches[0].tolist())
    assert len(twice) == missing
    assert not any(set(batches[-1].tolist()) & set(batch.tolist()) for batch in batches[1:-1])


def test_candidates_nearest_first_or_drawn_without_repetition(make, split):
    bag_W = split[1]
    nearest, drawn = make(unit="window"), make(unit="window", captions="random")
    seen = set()
    for step in range(3 * nearest.steps_before(1)):
        batch = nearest.batch(step)
        for window, choice in zip(batch.window_B, batch.choice_BK, strict=True):
            assert choice.tolist() == [k if k < bag_W[window] else -1 for k in range(3)]
        batch = drawn.batch(step)
        for window, choice in zip(batch.window_B, batch.choice_BK, strict=True):
            kept = choice[choice >= 0].tolist()
            assert len(set(kept)) == len(kept) == min(3, bag_W[window])
            assert all(k < bag_W[window] for k in kept)
            assert (choice[len(kept) :] == -1).all()
            seen |= {(int(window), tuple(kept))}
    by_window = {window: {kept for w, kept in seen if w == window} for window, _ in seen}
    assert any(len(kept) > 1 for kept in by_window.values())


def test_seed_changes_the_order(make, sequence):
    assert sequence(make(seed=1), range(3)) != sequence(make(seed=2), range(3))


def test_state_is_a_step_and_says_what_it_depends_on(make):
    state = make().state(17)
    assert state["step"] == 17
    assert state["fingerprint"] == make().state(3)["fingerprint"]
    for other in (make(seed=2), make(remainder="fill"), make(buckets={"budget": 960}), make(name="bb")):
        assert state["fingerprint"] != other.state(3)["fingerprint"]
    assert state["identity"]["set"] == "aa"


@pytest.mark.parametrize(("batch", "world", "nearest"), [(10, 4, 8), (11, 4, 12), (3, 4, 4), (7, 2, 6)])
def test_a_batch_that_the_ranks_do_not_divide_is_refused_with_the_nearest(batch, world, nearest):
    with pytest.raises(RequestError, match=f"batch_size={nearest}$"):
        check_batch_size(batch, world)
    check_batch_size(nearest, world)


@pytest.mark.parametrize("remainder", ["drop", "fill"])
def test_a_batch_larger_than_the_split_is_refused(make, remainder):
    with pytest.raises(RequestError, match=r"at most batch_size=40 or order\.unit=window"):
        make(batch_size=41, remainder=remainder)
    with pytest.raises(RequestError, match=r"at most batch_size=300$"):
        make(unit="window", batch_size=301, remainder=remainder)


@pytest.mark.parametrize("buckets", [None, {"budget": 720, "multiple": 12, "bounds": [4, 60]}])
@pytest.mark.parametrize("unit", ["video", "window"])
def test_windows_may_stand_in_any_order(make, split, unit, buckets):
    video_W, _, rows_W = split
    mixed_W = np.random.RandomState(0).permutation(300)
    order_W = np.argsort(video_W[mixed_W], kind="stable")
    scattered = make(unit=unit, buckets=buckets, video_W=video_W[mixed_W], rows_W=rows_W[mixed_W])
    in_order = make(
        unit=unit, buckets=buckets, video_W=video_W[mixed_W][order_W] * 7 - 100, rows_W=rows_W[mixed_W][order_W]
    )
    for step in range(2 * scattered.steps_before(1)):
        np.testing.assert_array_equal(scattered.batch(step).window_B, order_W[in_order.batch(step).window_B])


def test_windows_are_advised_only_where_there_are_enough(make):
    """300 windows of 40 videos."""
    with pytest.raises(RequestError, match=r"use at most batch_size=40 or order.unit=window$"):
        make(batch_size=300)
    with pytest.raises(RequestError, match=r"use at most batch_size=40$"):
        make(batch_size=301)
