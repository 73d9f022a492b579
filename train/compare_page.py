"""The page of `train compare`: the table, the curves of all runs, what each run holds similar. Needs no network."""

from __future__ import annotations

from train.charts import HEIGHT, WIDTH, Histogram, histogram, overlay
from train.compare_table import about, cells, header
from train.compared import Compared, Comparison
from train.report import page_environment
from train.similarities import Similarities

_SIDES = ("own windows", "other videos")


def page(found: Comparison) -> str:
    """HTML of one file."""
    charts = [
        overlay(f"Validation, {found.metric}", [(run.name, run.validation) for run in found.good]),
        overlay("Loss over the global batch", [(run.name, run.loss) for run in found.good]),
    ]
    return page_environment().get_template("compare.html.j2").render(
        about=about(found),
        header=header(found),
        rows=[cells(run, found) for run in found.good],
        failed=[run for run in found.runs if run.failure is not None],
        charts=[chart for chart in charts if chart is not None],
        histograms=_histograms(found.good),
        sides=_SIDES,
        width=WIDTH,
        height=HEIGHT,
    )  # fmt: skip


def _histograms(runs: list[Compared]) -> list[Histogram]:
    """One a run. Heights are each on their own scale: a collapsed run, all in one bin, would flatten the others."""
    known = [(run.name, run.similarities) for run in runs if run.similarities is not None]
    return [histogram(name, _shares(some), -1.0, 1.0, _summary(name, some)) for name, some in known]


def _shares(found: Similarities) -> dict[str, list[float]]:
    sides = (found.positive_H, found.negative_H)
    return {name: (side / max(1, side.sum())).tolist() for name, side in zip(_SIDES, sides, strict=True)}


def _summary(name: str, found: Similarities) -> str:
    apart = "none" if found.negative_mean is None else f"{found.negative_mean:.2f}"
    return f"{name}: mean cosine {found.positive_mean:.2f} with {_SIDES[0]}, {apart} with {_SIDES[1]}"
