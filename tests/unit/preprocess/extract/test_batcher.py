from __future__ import annotations

import pickle
from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preprocess.decode.sampling import Sampling
from preprocess.extract import TimmSection, with_smaller_batch
from preprocess.extract.base import ExtractorSpec
from preprocess.extract.batcher import FixedBatcher
from preprocess.extract.runtime import ComputeOutOfMemory
from shared.errors import EnvironmentLacking


class Doubler:
    """A row is twice the first pixel of its clip; memory is short for more than `fits` clips."""

    def __init__(self, batch_size: int, fits: int = 1000) -> None:
        self.spec = ExtractorSpec(
            kind="features",
            row_shape=(3,),
            dtype="float32",
            sampling=Sampling(),
            batch_size=batch_size,
            short_side=None,
            identity={},
        )
        self.fits = fits
        self.batches: list[int] = []

    def prepare(self, frames_THWC: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(frames_THWC[0, 0, 0].astype(np.float32))

    def compute(self, clips: torch.Tensor) -> np.ndarray:
        if clips.shape[0] > self.fits:
            raise torch.OutOfMemoryError(f"tried to allocate {clips.shape[0]} clips")
        self.batches.append(clips.shape[0])
        return (clips * 2).numpy()


class Collector:
    def __init__(self) -> None:
        self.parts = defaultdict(list)
        self.failures = {}

    def put(self, video, rows):
        self.parts[video].append(rows)

    def fail(self, video, failure):
        self.failures[video] = failure

    def rows(self, video):
        return np.concatenate(self.parts[video]) if self.parts[video] else np.empty((0, 3), np.float32)


def clip(value: int) -> np.ndarray:
    return np.full((1, 2, 2, 3), value, np.uint8)


def expected(values: list[int]) -> np.ndarray:
    return np.repeat(2.0 * np.array(values, np.float32)[:, None], 3, axis=1).reshape(-1, 3)


@given(
    batch_size=st.integers(1, 7),
    added=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 255)), max_size=40),
)
def test_rows_reach_their_video_in_order_however_videos_interleave(batch_size, added):
    extractor, sink = Doubler(batch_size), Collector()
    batcher = FixedBatcher(extractor, sink)
    for video, value in added:
        batcher.add(video, clip(value))
    batcher.flush()
    for video in "abcd":
        values = [value for owner, value in added if owner == video]
        np.testing.assert_array_equal(sink.rows(video), expected(values))
        assert batcher.pending(video) == 0
    assert extractor.batches == [batch_size] * -(-len(added) // batch_size)


def test_a_batch_is_computed_when_it_is_full_and_not_before():
    extractor, sink = Doubler(3), Collector()
    batcher = FixedBatcher(extractor, sink)
    batcher.add("a", clip(1))
    batcher.add("b", clip(2))
    assert (batcher.pending("a"), batcher.pending("b"), extractor.batches) == (1, 1, [])
    batcher.add("b", clip(3))
    assert (batcher.pending("b"), extractor.batches) == (0, [3])


def test_delivered_rows_are_not_overwritten_by_the_next_batch():
    class Reuser(Doubler):
        def compute(self, clips):
            self.out = getattr(self, "out", np.empty(clips.shape, np.float32))
            self.out[:] = clips.numpy()
            return self.out

    sink = Collector()
    batcher = FixedBatcher(Reuser(1), sink)
    for value in (5, 6):
        batcher.add("a", clip(value))
    np.testing.assert_array_equal(sink.rows("a")[:, 0], [5, 6])


def test_discard_forgets_the_pending_clips_of_one_video_only():
    sink = Collector()
    batcher = FixedBatcher(Doubler(8), sink)
    for video, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)):
        batcher.add(video, clip(value))
    batcher.discard("b")
    batcher.add("c", clip(6))
    batcher.flush()
    np.testing.assert_array_equal(sink.rows("a"), expected([1, 3]))
    np.testing.assert_array_equal(sink.rows("c"), expected([4, 6]))
    assert not sink.parts["b"]


def test_flush_and_discard_with_nothing_pending_do_nothing():
    extractor = Doubler(2)
    batcher = FixedBatcher(extractor, Collector())
    batcher.flush()
    batcher.discard("a")
    assert extractor.batches == []


def test_rows_that_are_not_finite_fail_their_video_and_no_other():
    class Overflowing(Doubler):
        def compute(self, clips):
            return np.where(clips.numpy() == 255, np.inf, clips.numpy()).astype(np.float32)

    sink = Collector()
    batcher = FixedBatcher(Overflowing(4), sink)
    for video, value in (("a", 1), ("b", 255), ("c", 3)):
        batcher.add(video, clip(value))
    batcher.flush()
    assert (sink.failures["b"].reason, sink.failures["b"].stage) == ("non_finite", "extract")
    assert set(sink.failures) == {"b"}
    assert len(sink.rows("a")) == len(sink.rows("c")) == 1


def test_out_of_memory_is_a_signal_that_says_what_did_not_fit():
    batcher = FixedBatcher(Doubler(4, fits=2), Collector())
    for value in range(3):
        batcher.add("a", clip(value))
    with pytest.raises(ComputeOutOfMemory) as caught:
        batcher.add("a", clip(3))
    assert caught.value.batch_size == 4
    assert "tried to allocate 4 clips" in caught.value.memory_summary
    travelled = pickle.loads(pickle.dumps(caught.value))
    assert (travelled.batch_size, travelled.memory_summary) == (4, caught.value.memory_summary)


def test_the_compute_shape_is_halved_until_one_clip():
    section = TimmSection(batch_size=5)
    assert with_smaller_batch(section, ComputeOutOfMemory(5, "")).batch_size == 2
    with pytest.raises(EnvironmentLacking, match="the summary") as caught:
        with_smaller_batch(section, ComputeOutOfMemory(1, "the summary"))
    assert caught.value.exit_code == 3


def test_clips_of_another_shape_are_a_bug_named_with_the_video():
    batcher = FixedBatcher(Doubler(4), Collector())
    batcher.add_prepared("a", torch.zeros(3))
    with pytest.raises(ValueError, match=r"expected \(3,\).*got \(4,\).*for b"):
        batcher.add_prepared("b", torch.zeros(4))
