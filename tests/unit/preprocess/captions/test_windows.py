"""Windows, the rows in them and their bags of captions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.captions.types import Caption
from preprocess.captions.windows import Alignment, LeftOut, Window, WindowConfig, align, rows_of

SECONDS = np.stack([np.arange(20.0), np.arange(20.0) + 1], axis=1)


def captions(*spans: tuple[float, float]) -> list[Caption]:
    return [Caption(start, end, "a") for start, end in spans]


def test_a_short_caption_grows_around_its_centre_and_shifts_into_the_video() -> None:
    found = align(
        captions((0.5, 1.5), (9.0, 10.0), (19.0, 20.0), (4.0, 12.0)), SECONDS, 20.0, WindowConfig(candidates=1)
    )
    assert [(w.start, w.end) for w in found.windows] == [(0.0, 5.0), (7.0, 12.0), (15.0, 20.0), (4.0, 12.0)]
    assert [(w.first_row, w.rows) for w in found.windows] == [(0, 5), (7, 5), (15, 5), (4, 8)]
    short = align(captions((0.5, 1.5)), SECONDS[:3], 3.0, WindowConfig())
    assert [(w.start, w.end, w.rows) for w in short.windows] == [(0.0, 3.0, 3)]


def test_the_nearest_captions_own_first_never_twice() -> None:
    spans = [(0.0, 1.0), (2.0, 3.0), (3.0, 4.0), (10.0, 11.0)]
    bags = [w.candidates for w in align(captions(*spans), SECONDS, 20.0, WindowConfig(candidates=3)).windows]
    assert bags == [(0, 1, 2), (1, 2, 0), (2, 1, 0), (3, 2, 1)]
    bags = [w.candidates for w in align(captions(*spans), SECONDS, 20.0, WindowConfig(candidates=9)).windows]
    assert [sorted(bag) for bag in bags] == [[0, 1, 2, 3]] * 4


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=12), st.integers(1, 6))
def test_nearest_agrees_with_sorting_everything(starts: list[int], count: int) -> None:
    spans = [(float(start), start + 1.0) for start in starts]
    found = align(captions(*spans), SECONDS, 20.0, WindowConfig(candidates=count)).windows
    in_time = sorted(range(len(starts)), key=lambda other: starts[other])
    for own, window in enumerate(found):
        apart = {other: in_time.index(other) - in_time.index(own) for other in in_time}
        order = sorted(in_time, key=lambda other: (abs(starts[other] - starts[own]), abs(apart[other]), apart[other]))
        order.sort(key=lambda other: other != own)
        assert window.candidates == tuple(order[:count])


def test_fixed_windows_cover_the_video() -> None:
    config = WindowConfig(strategy="fixed", length=6.0, hop=4.0, min_overlap=1.0)
    found = align(captions((0.0, 2.0), (5.5, 8.0), (3.9, 4.2), (13.0, 20.0)), SECONDS, 20.0, config)
    assert [(w.start, w.end, w.candidates) for w in found.windows] == [
        (0.0, 6.0, (0, 2)),
        (4.0, 10.0, (1,)),
        (8.0, 14.0, (3,)),
        (12.0, 18.0, (3,)),
        (14.0, 20.0, (3,)),
    ]
    assert found.left_out == ()


def test_fixed_windows_without_captions_are_reported() -> None:
    config = WindowConfig(strategy="fixed", length=5.0)
    found = align(captions((6.0, 7.0)), SECONDS, 12.0, config)
    assert [(w.start, w.end) for w in found.windows] == [(5.0, 10.0)]
    assert found.left_out == (LeftOut(0.0, 5.0, "no_captions"), LeftOut(7.0, 12.0, "no_captions"))
    assert align(captions((1.0, 2.0)), SECONDS[:3], 3.0, config).windows == (Window(0.0, 3.0, 0, 3, (0,)),)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 190), st.integers(1, 100)), min_size=1, max_size=10),
    st.integers(1, 80),
    st.integers(1, 80),
    st.integers(0, 30),
)
def test_fixed_bags_agree_with_looking_at_every_caption(
    raw: list[tuple[int, int]], length: int, hop: int, least: int
) -> None:
    spans = [(start / 10, min(20.0, (start + size) / 10)) for start, size in raw]
    config = WindowConfig(strategy="fixed", length=length / 10, hop=hop / 10, min_overlap=least / 10)
    found = align(captions(*spans), SECONDS, 20.0, config)
    for window in found.windows:
        shared = [min(end, window.end) - max(start, window.start) for start, end in spans]
        needed = [min(least / 10, end - start, window.end - window.start) - 1e-9 for start, end in spans]
        assert window.candidates == tuple(
            at for at, (got, need) in enumerate(zip(shared, needed, strict=True)) if got > 0 and got >= need
        )
    covered = sorted([(w.start, w.end) for w in (*found.windows, *found.left_out)])
    assert covered[0][0] == 0.0
    assert covered[-1][1] == pytest.approx(20.0)


def test_a_whole_video_and_a_limit_on_its_bag() -> None:
    spans = captions((0.0, 1.0), (9.0, 10.0), (11.0, 12.0), (18.0, 19.0))
    assert align(spans, SECONDS, 20.0, WindowConfig(strategy="video")).windows == (
        Window(0.0, 20.0, 0, 20, (0, 1, 2, 3)),
    )
    limited = align(spans, SECONDS, 20.0, WindowConfig(strategy="video", max_candidates=2))
    assert limited.windows[0].candidates == (1, 2)


def test_no_captions_no_windows() -> None:
    assert align([], SECONDS, 20.0, WindowConfig()) == Alignment((), ())


def bounds(*windows: tuple[float, float]) -> np.ndarray:
    return np.array(windows, np.float64)


def test_rows_belong_by_their_centre() -> None:
    first, rows = rows_of(bounds((0.4, 2.6), (0.6, 2.4), (3.5, 4.5), (19.0, 25.0)), SECONDS)
    assert list(zip(first.tolist(), rows.tolist(), strict=True)) == [(0, 3), (1, 1), (3, 1), (19, 1)]
    assert first.dtype == rows.dtype == np.int64


def test_a_window_between_centres_gets_the_row_that_covers_its_own() -> None:
    clips = np.array([[0.0, 4.0], [3.0, 7.0], [10.0, 14.0]])
    first, rows = rows_of(bounds((3.0, 3.4), (3.6, 3.8), (8.0, 9.0), (20.0, 21.0)), clips)
    assert rows.tolist() == [1, 1, 0, 0]
    assert first[:2].tolist() == [0, 1]


def test_a_window_without_rows_is_reported() -> None:
    holes = np.array([[0.0, 1.0], [15.0, 16.0]])
    found = align(captions((0.0, 1.0), (6.0, 7.0)), holes, 20.0, WindowConfig(min_seconds=2.0))
    assert [w.first_row for w in found.windows] == [0]
    assert found.left_out == (LeftOut(5.5, 7.5, "no_rows"),)
    none = align(captions((0.0, 1.0)), np.empty((0, 2)), 20.0, WindowConfig())
    assert none.left_out == (LeftOut(0.0, 5.0, "no_rows"),)


def test_rows_out_of_order_are_a_bug() -> None:
    with pytest.raises(ValueError, match="order of time"):
        rows_of(bounds((0.0, 1.0)), SECONDS[::-1])
