"""The table of `train compare`, for a terminal and for the page."""

from __future__ import annotations

from typing import Any

from train.compared import Compared, Comparison

_RECALLS = 3
_UNKNOWN = "-"


def table(found: Comparison) -> str:
    """One line a run, what failed and why below; recalls in percent."""
    lines = [header(found), *(cells(run, found) for run in found.good)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    shown = [
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in lines
    ]  # fmt: skip
    failed = [f"{run.name} failed: {run.failure}" for run in found.runs if run.failure is not None]
    return "\n".join([about(found), *(shown if found.good else []), *failed])


def about(found: Comparison) -> str:
    """What the numbers are of."""
    about = f"text to video on split {found.split} of {found.store}, set {found.set_name}"
    if not found.good:
        return f"{about}: no run has numbers"
    metrics = found.good[0].metrics
    way = metrics["text_to_video"]
    between = f", [with other videos, {way['interval']['confidence']:.0%}]" if way["interval"] else ""
    return f"{about}: {way['queries']} queries, {way['items']} candidates; recalls in percent{between}"


def header(found: Comparison) -> list[str]:
    level = "steps to a level" if found.level is None else f"steps to {found.level}"
    return ["run", *recalls(found), "MedR", level, "steps", "temperature", "time", "peak memory"]


def recalls(found: Comparison) -> list[str]:
    """The first three recalls that were measured, R@1, R@5 and R@10 by default."""
    if not found.good:
        return []
    return [name for name in found.good[0].metrics["text_to_video"] if name.startswith("R@")][:_RECALLS]


def cells(run: Compared, found: Comparison) -> list[str]:
    """A run that did not fail, as text under `header`."""
    way = run.metrics["text_to_video"]
    steps = str(run.step) if run.finished else f"{run.step}, unfinished"
    return [
        run.name,
        *(f"{100 * way[name]:.1f}{_between(way, name, 100)}" for name in recalls(found)),
        f"{way['MedR']:.1f}{_between(way, 'MedR', 1)}",
        _level(run, found),
        steps,
        f"{run.temperature:.4f}",
        _UNKNOWN if run.seconds is None else f"{run.seconds:.0f} s",
        _memory(run),
    ]


def _between(way: dict[str, Any], name: str, factor: float) -> str:
    if name not in way["interval"]:
        return ""
    low, high = way["interval"][name]
    return f" [{factor * low:.1f}, {factor * high:.1f}]"


def _level(run: Compared, found: Comparison) -> str:
    if found.level is None or not run.validation:
        return _UNKNOWN
    return "not reached" if run.level_step is None else str(run.level_step)


def _memory(run: Compared) -> str:
    if run.peak_memory is None:
        return _UNKNOWN
    gpu = "" if run.peak_cuda is None else f" + {run.peak_cuda / 2**20:,.0f} on GPU"
    return f"{run.peak_memory / 2**20:,.0f} MiB{gpu}"
