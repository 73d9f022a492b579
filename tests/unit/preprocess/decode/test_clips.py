from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.decode.clips import ClipAssembler
from preprocess.decode.grid import grid_of, tolerance_of
from preprocess.decode.sampling import Sampling
from preprocess.decode.video import FrameBlock

TOLERANCE = tolerance_of(Fraction(1, 1000))


def block_of(numbers, times, keys=()):
    """Frames whose every pixel is their number."""
    return FrameBlock(
        index_T=np.array(numbers),
        time_T=np.array([times[n] for n in numbers]),
        key_T=np.array([n == 0 or n in keys for n in numbers]),
        frames_THWC=np.array(numbers, dtype=np.uint8).reshape(-1, 1, 1, 1) * np.ones((1, 2, 2, 3), np.uint8),
    )


def rows_of(sampling, times, end, keys=(), block=3, drop=True):
    grid = grid_of(sampling, times[0], end, TOLERANCE)
    until = [*times[1:], end]
    needed = [n for n, t in enumerate(times) if not drop or n == 0 or grid.needs(t, until[n], n in keys)]
    assembler = ClipAssembler(grid)
    rows = []
    for start in range(0, len(needed), block):
        rows += assembler.push(block_of(needed[start : start + block], times, keys))
    return rows + list(assembler.finish(end))


def test_one_frame_gives_one_row_in_every_strategy():
    for sampling in (
        Sampling(fps=1),
        Sampling(strategy="dense", fps=5, frames=4),
        Sampling(strategy="keyframes"),
    ):
        (row,) = rows_of(sampling, [0.0], 0.04)
        assert (row.start, row.end, row.valid) == (0.0, 0.04, 1)
        assert row.frames_THWC.shape == (sampling.clip_frames, 2, 2, 3)
    assert len(rows_of(Sampling(strategy="uniform", frames=3), [0.0], 0.04)) == 3


def test_short_clips_repeat_their_last_frame_and_say_so():
    times = [n / 10 for n in range(13)]
    rows = rows_of(Sampling(strategy="dense", fps=10, frames=5), times, 1.3)
    assert [(row.start, row.end, row.valid) for row in rows] == [(0.0, 0.5, 5), (0.5, 1.0, 5), (1.0, 1.3, 3)]
    assert rows[-1].index_T.tolist() == [10, 11, 12, 12, 12]
    assert rows[-1].frames_THWC[:, 0, 0, 0].tolist() == [10, 11, 12, 12, 12]


def test_overlapping_clips_share_frames():
    times = [n / 10 for n in range(10)]
    rows = rows_of(Sampling(strategy="dense", fps=10, frames=4, hop=0.2), times, 1.0)
    assert [row.index_T.tolist() for row in rows][:3] == [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7]]
    assert [row.valid for row in rows] == [4, 4, 4, 4, 2]


def test_a_long_frame_fills_every_row_that_it_is_shown_in():
    rows = rows_of(Sampling(fps=1), [0.0, 0.5, 3.2], 3.5)
    assert [row.index_T[0] for row in rows] == [0, 1, 1, 1]
    assert [row.start for row in rows] == [0.0, 1.0, 2.0, 3.0]
    assert rows[-1].end == 3.5


def test_times_before_a_late_video_show_its_first_frame():
    rows = rows_of(Sampling(fps=1), [2.543, 3.2], 3.6)
    assert [(row.start, row.index_T[0]) for row in rows] == [(2.0, 0), (3.0, 0)]


def test_key_frames_reach_until_the_next():
    times = [n / 10 for n in range(10)]
    rows = rows_of(Sampling(strategy="keyframes"), times, 1.0, keys={4, 7})
    assert [(row.start, row.end, row.index_T[0]) for row in rows] == [(0.0, 0.4, 0), (0.4, 0.7, 4), (0.7, 1.0, 7)]


def test_a_row_is_not_given_out_before_its_end_is_certain():
    grid = grid_of(Sampling(fps=1), 0.0, 9.0, TOLERANCE)
    assembler = ClipAssembler(grid)
    times = [0.0, 0.04, 0.5]
    assert list(assembler.push(block_of([0, 1, 2], times))) == []
    (row,) = assembler.finish(0.54)
    assert (row.start, row.end) == (0.0, 0.54)


def test_rows_own_their_frames():
    block = block_of([0, 1, 2, 3], [0.0, 1.0, 2.0, 3.0])
    assembler = ClipAssembler(grid_of(Sampling(fps=1), 0.0, 4.0, TOLERANCE))
    rows = list(assembler.push(block))
    block.frames_THWC[:] = 99
    assert [row.frames_THWC.max() for row in rows] == [0, 1, 2]


@st.composite
def cases(draw):
    gaps = draw(st.lists(st.integers(1, 900), min_size=1, max_size=40))
    times = np.cumsum([draw(st.integers(0, 2500)), *gaps]) / 1000
    sampling = draw(
        st.builds(Sampling, fps=st.sampled_from([0.5, 1, 3, 10]))
        | st.builds(
            Sampling,
            strategy=st.just("dense"),
            fps=st.sampled_from([2, 8]),
            frames=st.integers(1, 6),
            hop=st.none() | st.sampled_from([0.25, 1.0]),
        )
        | st.builds(Sampling, strategy=st.just("uniform"), frames=st.integers(1, 9))
    )
    return sampling, times[:-1].tolist(), float(times[-1])


@settings(max_examples=300, deadline=None)
@given(cases(), st.integers(1, 7), st.booleans())
def test_rows_are_what_the_definition_says_however_frames_arrive(case, block, drop):
    """Brute force over all frames, against blocks of any size with or without the frames nobody needs."""
    sampling, times, end = case
    grid = grid_of(sampling, times[0], end, TOLERANCE)
    rows = rows_of(sampling, times, end, block=block, drop=drop)
    assert len(rows) >= 1
    number = grid.first_row
    for row in rows:
        assert grid.has_row(number, end)
        instants = grid.instants(number)
        valid = max(1, sum(instant < end - TOLERANCE for instant in instants))
        shown = [max((n for n, t in enumerate(times) if t - TOLERANCE <= i), default=0) for i in instants[:valid]]
        shown += [shown[-1]] * (len(instants) - valid)
        assert row.valid == valid
        assert row.index_T.tolist() == shown
        assert row.frames_THWC[:, 0, 0, 0].tolist() == shown
        assert (row.start, row.end) == grid.bounds(number, end)
        number += 1
    assert not grid.has_row(number, end)
    assert rows[-1].end <= end


def test_no_more_frames_are_held_than_a_row_spans():
    grid = grid_of(Sampling(strategy="dense", fps=10, frames=8), 0.0, 1e9, TOLERANCE)
    assembler = ClipAssembler(grid)
    times = [n / 10 for n in range(250)]
    held = 0
    for n in range(250):
        for _ in assembler.push(block_of([n], times)):
            pass
        held = max(held, len(assembler._rows.held))
    assert held <= 9


@pytest.mark.parametrize("strategy", ["fps", "keyframes"])
def test_nothing_in_gives_nothing_out(strategy):
    grid = grid_of(Sampling(strategy=strategy), 0.0, 1.0, TOLERANCE)
    assert list(ClipAssembler(grid).finish(1.0)) == []
