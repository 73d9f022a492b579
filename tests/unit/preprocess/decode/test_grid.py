import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.decode.grid import Grid, KeyGrid, NoFrames, grid_of, tolerance_of
from preprocess.decode.sampling import Sampling

TICK = 1e-6


def test_tolerance_is_half_a_tick_within_bounds():
    assert tolerance_of(Fraction(1, 1000)) == pytest.approx(5.1e-4)
    assert tolerance_of(Fraction(1, 12800)) == pytest.approx(0.51 / 12800)
    assert tolerance_of(Fraction(1, 10_000_000)) == 1e-6
    assert tolerance_of(Fraction(1, 25)) == 5.1e-4


def test_fps_rows_follow_the_docstring():
    grid = grid_of(Sampling(fps=2), first=0.0, end=1.2, tolerance=TICK)
    assert isinstance(grid, Grid)
    rows = [row for row in range(10) if grid.has_row(row, 1.2)]
    assert [grid.bounds(row, 1.2) for row in rows] == [(0.0, 0.5), (0.5, 1.0), (1.0, 1.2)]


def test_a_row_that_would_begin_at_the_end_does_not_exist():
    grid = grid_of(Sampling(fps=1), first=0.0, end=2.0, tolerance=TICK)
    assert isinstance(grid, Grid)
    assert not grid.has_row(2, 2.0)
    assert not grid.has_row(2, 2.0 + TICK / 2)


def test_rows_wholly_before_a_late_first_frame_do_not_exist_but_the_one_it_falls_in_does():
    grid = grid_of(Sampling(fps=1), first=2.543, end=4.0, tolerance=TICK)
    assert isinstance(grid, Grid)
    assert grid.first_row == 2
    assert grid.needs(2.543, 2.583, True)


def test_a_clip_with_gaps_between_clips_begins_before_the_first_frame():
    grid = grid_of(Sampling(strategy="dense", fps=10, frames=10, hop=10), first=5.0, end=7.0, tolerance=TICK)
    assert isinstance(grid, Grid)
    assert grid.first_row == 0


def test_uniform_takes_the_middle_of_equal_parts():
    grid = grid_of(Sampling(strategy="uniform", frames=4), first=1.0, end=9.0, tolerance=TICK)
    assert isinstance(grid, Grid)
    assert [grid.instants(row)[0] for row in range(4)] == [2.0, 4.0, 6.0, 8.0]
    assert [grid.bounds(row, 9.0) for row in range(4)] == [(1.0, 3.0), (3.0, 5.0), (5.0, 7.0), (7.0, 9.0)]
    assert not grid.has_row(4, 9.0)


def test_keyframes_need_key_frames_alone():
    grid = grid_of(Sampling(strategy="keyframes"), first=0.0, end=1.0, tolerance=TICK)
    assert isinstance(grid, KeyGrid)
    assert grid.needs(0.5, 0.6, True)
    assert not grid.needs(0.5, 0.6, False)


def test_a_scan_needs_nothing():
    assert not NoFrames().needs(0.0, 9.0, True)


def test_selecting_is_pointless_where_instants_are_closer_than_frames():
    grid = grid_of(Sampling(fps=30), first=0.0, end=9.0, tolerance=TICK)
    assert grid.select(0.04, "t") is None
    assert grid.select(0.03, "t") is not None


@st.composite
def samplings(draw):
    if draw(st.booleans()):
        return Sampling(fps=draw(st.sampled_from([0.3, 1, 2, 7.5, 24, 30])))
    hop = draw(st.none() | st.sampled_from([0.1, 0.7, 1.0, 5.0]))
    return Sampling(strategy="dense", fps=draw(st.sampled_from([1, 5, 12.5])), frames=draw(st.integers(1, 9)), hop=hop)


@st.composite
def shown_times(draw):
    """Increasing times of frames in milliseconds, as a variable rate makes them, and the end."""
    gaps = draw(st.lists(st.integers(1, 900), min_size=1, max_size=40))
    times = np.cumsum([draw(st.integers(0, 3000)), *gaps]) / 1000
    return times[:-1].tolist(), float(times[-1])


@settings(max_examples=200, deadline=None)
@given(samplings(), shown_times())
def test_needed_frames_are_those_on_screen_at_some_instant(sampling, shown):
    times, end = shown
    tolerance = tolerance_of(Fraction(1, 1000))
    grid = grid_of(sampling, times[0], end, tolerance)
    assert isinstance(grid, Grid)
    on_screen = {0}
    row = grid.first_row
    while grid.has_row(row, end):
        for instant in grid.instants(row):
            if instant < end - tolerance:
                on_screen.add(max((n for n, time in enumerate(times) if time - tolerance <= instant), default=0))
        row += 1
    until = [*times[1:], end]
    needed = {n for n, time in enumerate(times) if grid.needs(time, until[n], False)}
    assert needed == on_screen


@settings(max_examples=200, deadline=None)
@given(samplings(), shown_times())
def test_ffmpeg_lets_every_needed_frame_through(sampling, shown):
    times, end = shown
    tolerance = tolerance_of(Fraction(1, 1000))
    grid = grid_of(sampling, times[0], end, tolerance)
    until = [*times[1:], end]
    gap = max(b - a for a, b in zip(times, until, strict=True)) + tolerance
    expression = grid.select(gap, "t")
    if expression is None:
        return
    python = expression.replace("lt(", "less(")
    for number, time in enumerate(times):
        if grid.needs(time, until[number], False):
            words = {
                "t": time,
                "n": number,
                "eq": lambda a, b: a == b,
                "less": lambda a, b: a < b,
                "mod": lambda a, b: a - math.floor(a / b) * b,
            }
            assert eval(python, {"__builtins__": {}}, words)
