"""Curves as the numbers an SVG needs; the template draws them. No script, no network, scales with the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
    placed = _placed(points, x_at, y_at)
    labels = [f"step {x:g}: {short(y)}" for x, y in points]
    stride = max(1, len(points) // _MOST_ROWS)
    return Chart(
        title=title,
        summary=f"{title}: {short(values[0])} at step {steps[0]:g}, {short(values[-1])} at step {steps[-1]:g}, "
        f"between {short(lowest)} and {short(highest)}",
        line=_line(points, x_at, y_at),
        marks=[(x, y, label) for (x, y), label in zip(placed, labels, strict=True)]
        if len(points) <= _MOST_MARKS
        else [],
        x_ticks=_x_labels(x_at),
        y_ticks=_y_labels(y_at),
        rows=[(f"{x:g}", short(y)) for x, y in points[::stride]],
    )


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Three to seven round numbers, evenly spaced, from at most `low` to at least `high`."""
    size = max(abs(low), abs(high))
    # Numbers that differ in their last digits alone are one number: steps between them would round to nothing.
    span = high - low if high - low > 1e-9 * size else size or 1.0
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


@dataclass(frozen=True)
class Series:
    """A line of an `Overlay`. style: which of the styles of the page it is drawn in. rows: (step, value) as text."""

    name: str
    style: str
    line: str
    rows: list[tuple[str, str]]


@dataclass(frozen=True)
class Overlay:
    """Several curves on common axes. summary: for those who do not see it."""

    title: str
    summary: str
    series: list[Series]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


# Coprime, so that 15 lines are told apart, and neighbours by colour and dashes both.
_COLOURS, _DASHES = 5, 3


def line_style(number: int) -> str:
    """Classes of the page's style sheet for the line of this number."""
    return f"c{number % _COLOURS} d{number % _DASHES}"


def overlay(title: str, curves: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> Overlay | None:
    """A chart of named curves, each (step, value) pairs in order of steps; those without any keep their style, but are
    left out. The axis includes 0. None where no curve has a point."""
    points = [point for _, some in curves for point in some]
    if not points:
        return None
    y_at = ticks(min(0.0, *(y for _, y in points)), max(y for _, y in points))
    x_at = ticks(min(x for x, _ in points), max(x for x, _ in points), whole=True)
    series = [
        Series(name, line_style(number), _line(some, x_at, y_at), [(f"{x:g}", short(y)) for x, y in some])
        for number, (name, some) in enumerate(curves)
        if some
    ]
    ends = "; ".join(f"{name} ends at {short(some[-1][1])}" for name, some in curves if some)
    return Overlay(title, f"{title}: {ends}", series, _x_labels(x_at), _y_labels(y_at))


@dataclass(frozen=True)
class Histogram:
    """Outlines over common bins. outlines: (name, points of an SVG polygon). rows: a bin, then a share a name."""

    title: str
    summary: str
    outlines: list[tuple[str, str]]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    rows: list[tuple[str, ...]]


def histogram(title: str, shares: Mapping[str, Sequence[float]], low: float, high: float, summary: str) -> Histogram:
    """Shares in equal bins over [low, high]."""
    x_at, y_at = ticks(low, high), ticks(0.0, max(map(max, shares.values())))
    bins = len(next(iter(shares.values())))
    edges = [low + (high - low) * number / bins for number in range(bins + 1)]
    outlines = [(name, _line(_outline(some, edges), x_at, y_at)) for name, some in shares.items()]
    rows = [
        (f"{edges[number]:.2f} to {edges[number + 1]:.2f}", *(f"{some[number]:.1%}" for some in shares.values()))
        for number in range(bins)
        if any(some[number] for some in shares.values())
    ]
    return Histogram(title, summary, outlines, _x_labels(x_at), _y_labels(y_at, "{:.0%}".format), rows)


def _outline(shares: Sequence[float], edges: Sequence[float]) -> list[tuple[float, float]]:
    tops = [(edge, share) for number, share in enumerate(shares) for edge in edges[number : number + 2]]
    return [(edges[0], 0.0), *tops, (edges[-1], 0.0)]


def _placed(
    points: Sequence[tuple[float, float]], x_at: Sequence[float], y_at: Sequence[float]
) -> list[tuple[float, float]]:
    return [(_place(x, x_at, _LEFT, WIDTH - _RIGHT), _place(y, y_at, HEIGHT - _BOTTOM, _TOP)) for x, y in points]


def _line(points: Sequence[tuple[float, float]], x_at: Sequence[float], y_at: Sequence[float]) -> str:
    """The points of an SVG polyline."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in _placed(points, x_at, y_at))


def _x_labels(x_at: Sequence[float]) -> list[tuple[float, str]]:
    return [(_place(x, x_at, _LEFT, WIDTH - _RIGHT), f"{x:g}") for x in x_at]


def _y_labels(y_at: Sequence[float], shown: Callable[[float], str] = short) -> list[tuple[float, str]]:
    return [(_place(y, y_at, HEIGHT - _BOTTOM, _TOP), shown(y)) for y in y_at]
