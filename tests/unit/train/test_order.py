from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import RequestError
from train.order import Order, OrderConfig, check_batch_size

RANDOM = np.random.RandomState(3)
VIDEO_W = np.sort(RANDOM.randint(0, 40, 300)) * 7
BAG_W = RANDOM.randint(0, 6, 300)


def make(unit="video", captions="nearest", batch_size=12, seed=1, candidates=3, video_W=VIDEO_W, bag_W=BAG_W):
    config = OrderConfig(unit=unit, captions=captions, candidates=candidates)
    return Order(video_W, bag_W, batch_size=batch_size, seed=seed, config=config, identity={"set": "aa"})


def sequence(order, steps):
    """Windows and captions of some steps, as one comparable value."""
    batches = [order.batch(step) for step in steps]
    return [(b.window_B.tolist(), b.choice_BK.tolist()) for b in batches]


@pytest.mark.parametrize("captions", ["nearest", "random"])
@pytest.mark.parametrize("unit", ["video", "window"])
def test_every_step_alone_is_what_it_is_in_the_sequence(unit, captions):
    order = make(unit, captions)
    steps = range(2 * order.steps_per_epoch + 3)
    whole = sequence(order, steps)
    assert [sequence(make(unit, captions), [step])[0] for step in steps] == whole
    assert sequence(order, reversed(steps)) == whole[::-1]


@pytest.mark.parametrize("unit", ["video", "window"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
def test_parts_of_the_ranks_make_the_same_global_batch(unit, size):
    order = make(unit, "random")
    for step in range(order.steps_per_epoch + 1):
        whole = order.batch(step)
        parts = [whole.part(rank, size) for rank in range(size)]
        assert np.concatenate([part.window_B for part in parts]).tolist() == whole.window_B.tolist()
        assert np.concatenate([part.choice_BK for part in parts]).tolist() == whole.choice_BK.tolist()
        assert {len(part.window_B) for part in parts} == {12 // size}


def test_each_video_at_most_once_an_epoch_and_all_but_the_remainder():
    order = make()
    videos = len(set(VIDEO_W.tolist()))
    assert (order.steps_per_epoch, order.left_out) == (videos // 12, videos % 12)
    seen_by_epoch = []
    for epoch in range(6):
        steps = range(epoch * order.steps_per_epoch, (epoch + 1) * order.steps_per_epoch)
        seen = VIDEO_W[np.concatenate([order.batch(step).window_B for step in steps])]
        assert len(set(seen.tolist())) == len(seen) == videos - order.left_out
        seen_by_epoch.append(tuple(seen.tolist()))
    assert len(set(seen_by_epoch)) == 6
    assert len({video for seen in seen_by_epoch for video in seen}) == videos


def test_every_window_of_a_video_gets_its_turn():
    order = make(batch_size=40)
    windows = {window for step in range(400) for window in order.batch(step).window_B.tolist()}
    assert windows == set(range(300))


@settings(max_examples=80, deadline=None)
@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    batch_size=st.integers(1, 25),
    seed=st.integers(0, 10),
)
def test_windows_are_dealt_as_evenly_as_they_can_be(counts, batch_size, seed):
    video_W = np.repeat(np.arange(len(counts)), counts)
    if len(video_W) < batch_size:
        return
    order = make("window", batch_size=batch_size, seed=seed, video_W=video_W, bag_W=np.ones(len(video_W), int))
    steps = order.steps_per_epoch
    batches = [order.batch(step).window_B for step in range(steps)]
    windows = np.concatenate(batches)
    assert len(set(windows.tolist())) == len(windows) == steps * batch_size
    kept_V = np.bincount(video_W[windows], minlength=len(counts))
    for batch in batches:
        assert (np.bincount(video_W[batch], minlength=len(counts)) <= -(-kept_V // steps)).all()


def test_candidates_nearest_first_or_drawn_without_repetition():
    nearest, drawn = make("window"), make("window", "random")
    seen = set()
    for step in range(3 * nearest.steps_per_epoch):
        for window, choice in zip(nearest.batch(step).window_B, nearest.batch(step).choice_BK, strict=True):
            assert choice.tolist() == [k if k < BAG_W[window] else -1 for k in range(3)]
        for window, choice in zip(drawn.batch(step).window_B, drawn.batch(step).choice_BK, strict=True):
            kept = choice[choice >= 0].tolist()
            assert len(set(kept)) == len(kept) == min(3, BAG_W[window])
            assert all(k < BAG_W[window] for k in kept)
            assert (choice[len(kept) :] == -1).all()
            seen |= {(int(window), tuple(kept))}
    by_window = {window: {kept for w, kept in seen if w == window} for window, _ in seen}
    assert any(len(kept) > 1 for kept in by_window.values())


def test_seed_changes_the_order():
    assert sequence(make(seed=1), range(3)) != sequence(make(seed=2), range(3))


def test_state_is_a_step_and_says_what_it_depends_on():
    state = make().state(17)
    assert state["step"] == 17
    assert state["fingerprint"] == make().state(3)["fingerprint"]
    assert state["fingerprint"] != make(seed=2).state(3)["fingerprint"]
    assert state["identity"]["set"] == "aa"


@pytest.mark.parametrize(("batch", "world", "nearest"), [(10, 4, 8), (11, 4, 12), (3, 4, 4), (7, 2, 6)])
def test_a_batch_that_the_ranks_do_not_divide_is_refused_with_the_nearest(batch, world, nearest):
    with pytest.raises(RequestError, match=f"batch_size={nearest}$"):
        check_batch_size(batch, world)
    check_batch_size(nearest, world)


def test_a_batch_larger_than_the_split_is_refused():
    with pytest.raises(RequestError, match=r"at most batch_size=40 or order\.unit=window"):
        make(batch_size=41)
    with pytest.raises(RequestError, match="at most batch_size=300"):
        make("window", batch_size=301)


@pytest.mark.parametrize("unit", ["video", "window"])
def test_windows_may_stand_in_any_order(unit):
    scattered_W = np.random.RandomState(0).permutation(VIDEO_W)
    order_W = np.argsort(scattered_W, kind="stable")
    bags = np.ones(len(scattered_W), int)
    scattered = make(unit, video_W=scattered_W, bag_W=bags)
    in_order = make(unit, video_W=scattered_W[order_W] * 7 - 100, bag_W=bags)
    for step in range(2 * scattered.steps_per_epoch):
        np.testing.assert_array_equal(scattered.batch(step).window_B, order_W[in_order.batch(step).window_B])
