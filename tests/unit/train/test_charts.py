from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from train.charts import HEIGHT, WIDTH, curve, histogram, line_style, overlay, short, ticks

NUMBER = st.floats(-1e9, 1e9, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-6)


@given(NUMBER, NUMBER)
def test_ticks_enclose_and_are_few(first, second):
    low, high = sorted((first, second))
    marks = ticks(low, high)
    slack = 1e-6 * max(abs(low), abs(high), 1e-9)
    assert marks[0] <= low + slack
    assert marks[-1] >= high - slack
    assert 2 <= len(marks) <= 7


@pytest.mark.parametrize(("low", "high", "expected"), [(0, 4, [0, 1, 2, 3, 4]), (1, 80, [0, 20, 40, 60, 80])])
def test_ticks_are_round(low, high, expected):
    assert ticks(low, high) == expected


@given(st.lists(NUMBER, min_size=1, max_size=100))
@example([-1e9, -999999999.9999999])
def test_curve_stays_inside(values):
    chart = curve("Loss", [(10.0 * (i + 1), y) for i, y in enumerate(values)])
    points = [tuple(map(float, point.split(","))) for point in chart.line.split()]
    assert len(points) == len(values)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    assert len(chart.rows) <= 40


def test_higher_is_higher_and_later_is_right():
    chart = curve("Accuracy", [(1, 0.1), (2, 0.4)], from_zero=True)
    (x1, y1), (x2, y2) = (tuple(map(float, point.split(","))) for point in chart.line.split())
    assert x2 > x1
    assert y2 < y1
    assert chart.y_ticks[0][1] == "0"
    assert "0.1 at step 1, 0.4 at step 2" in chart.summary
    assert curve("Empty", []) is None


def test_short_numbers():
    assert [short(x) for x in (0.0, 0.00123, 12.34, 123456.0)] == ["0", "0.00123", "12.3", "123,456"]


def test_curves_share_their_axes_and_keep_their_style():
    chart = overlay("Loss", [("a", [(0, 4.0), (10, 2.0)]), ("none", []), ("b", [(5, 1.0)])])
    assert [series.name for series in chart.series] == ["a", "b"]
    (a1, a2), (b1,) = (
        [tuple(map(float, point.split(","))) for point in series.line.split()] for series in chart.series
    )
    assert a1[0] < b1[0] < a2[0]
    assert a1[1] < a2[1] < b1[1]
    assert [series.style for series in chart.series] == [line_style(0), line_style(2)]
    assert "a ends at 2; b ends at 1" in chart.summary
    assert overlay("Empty", [("a", [])]) is None
    assert len({line_style(number) for number in range(15)}) == 15


def test_histogram_is_an_outline_on_one_scale():
    chart = histogram("a", {"x": [0.0, 0.25, 0.75], "y": [1.0, 0.0, 0.0]}, -1.0, 1.0, "of a")
    points = [tuple(map(float, point.split(","))) for point in chart.outlines[0][1].split()]
    base, top = points[0][1], min(y for _, y in points)
    assert len(points) == 8
    assert points[-1][1] == base
    assert (base - top) / (base - chart.y_ticks[-1][0]) == pytest.approx(0.75, abs=0.01)
    assert chart.rows[1] == ("-0.33 to 0.33", "25.0%", "0.0%")
