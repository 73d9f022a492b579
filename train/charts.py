"""Curves as the numbers an SVG needs; the template draws them. No script, no network, scales with the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 420, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 28
_MOST_MARKS = 60
_MOST_ROWS = 20


@dataclass(frozen=True)
class Chart:
    """title, unit: for people. summary: the curve in a sentence, for those who do not see it.

    line: points of an SVG polyline. marks: (x, y, label) of single points, none where they would merge into the line.
    x_ticks, y_ticks: (position, label). rows: (step, value) as text, at most about 20 of them.
    """

    title: str
    summary: str
    line: str
    marks: list[tuple[float, float, str]]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    rows: list[tuple[str, str]]


def curve(title: str, points: Sequence[tuple[float, float]], *, from_zero: bool = False) -> Chart | None:
    """A chart of (step, value) pairs in order of steps; None where there are none. from_zero: the axis includes 0."""
    if not points:
        return None
    steps, values = [x for x, _ in points], [y for _, y in points]
    lowest, highest = min(values), max(values)
    y_at = ticks(min(0.0, lowest) if from_zero else lowest, highest)
    x_at = ticks(steps[0], steps[-1], whole=True)
    placed = [
        (_place(x, x_at, _LEFT, WIDTH - _RIGHT), _place(y, y_at, HEIGHT - _BOTTOM, _TOP)) for x, y in points
    ]  # fmt: skip
    labels = [f"step {x:g}: {short(y)}" for x, y in points]
    stride = max(1, len(points) // _MOST_ROWS)
    return Chart(
        title=title,
        summary=f"{title}: {short(values[0])} at step {steps[0]:g}, {short(values[-1])} at step {steps[-1]:g}, "
        f"between {short(lowest)} and {short(highest)}",
        line=" ".join(f"{x:.1f},{y:.1f}" for x, y in placed),
        marks=[(x, y, label) for (x, y), label in zip(placed, labels, strict=True)]
        if len(points) <= _MOST_MARKS
        else [],
        x_ticks=[(_place(x, x_at, _LEFT, WIDTH - _RIGHT), f"{x:g}") for x in x_at],
        y_ticks=[(_place(y, y_at, HEIGHT - _BOTTOM, _TOP), short(y)) for y in y_at],
        rows=[(f"{x:g}", short(y)) for x, y in points[::stride]],
    )


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Three to seven round numbers, evenly spaced, from at most `low` to at least `high`."""
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / 4))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= 4)
    step = max(step, 1.0) if whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def short(value: float) -> str:
    """Three significant digits, no exponent where it can be avoided."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _place(value: float, axis: Sequence[float], start: float, end: float) -> float:
    return start + (value - axis[0]) / (axis[-1] - axis[0]) * (end - start)
