"""`train report`: one HTML page that needs no network: curves, metrics beside chance, finds and mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from train.charts import HEIGHT, WIDTH, Chart, curve
from train.checkpoint import resolve_checkpoint
from train.distributed import distributed_world
from train.embedded import embed_split
from train.evaluate import Subject, measured, open_subject, run_folder
from train.gallery import galleries
from train.outputs import check_output, write_output
from train.retrieval import metric_value
from train.runlog import METRICS_FILE, read_records
from train.thumbnails import find_thumbnails

# Key in metrics.jsonl, title, whether the axis starts at zero.
_CURVES = (
    ("loss", "Loss over the global batch", False),
    ("accuracy", "Accuracy in the batch", True),
    ("temperature", "Temperature", False),
    ("grad_norm", "Gradient norm before clipping", True),
    ("lr", "Learning rate", True),
)


def write_report(target: Path, *, store: Path | None = None, split: str | None = None, out: Path | None = None) -> Path:
    """Evaluate a run's best checkpoint and write the page; returns its path (default: report.html in the run folder).

    Raises RequestError where the run has no checkpoint or does not fit the store, DamageFound for what was changed.
    """
    path = out or run_folder(resolve_checkpoint(target)) / "report.html"
    check_output(path)
    with distributed_world("auto") as world:
        subject = open_subject(target, world, store=store, set_name=None, split=split)
        config = subject.config.evaluate
        embedded = embed_split(subject.model, subject.data, world, config.batch_size, config.captions)
        result = measured(subject, embedded, config)
        thumbnails = find_thumbnails(subject.store, subject.data)
        pictures = None if isinstance(thumbnails, str) else thumbnails
        sample, mistakes = galleries(embedded, subject.data, pictures)
    page = page_environment().get_template("report.html.j2").render(
        title=run_folder(subject.checkpoint).name,
        result=result,
        directions=_directions(result),
        between=_between,
        facts=_facts(subject),
        charts=_charts(run_folder(subject.checkpoint), subject.config.checkpoint.metric),
        width=WIDTH,
        height=HEIGHT,
        sample=sample,
        mistakes=mistakes,
        why_no_pictures=thumbnails if isinstance(thumbnails, str) else None,
    )  # fmt: skip
    write_output(path, page.encode())
    return path


def page_environment() -> Environment:
    """Of the templates beside this file; what they print is escaped."""
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _charts(run: Path, metric: str) -> list[Chart]:
    """The curves that metrics.jsonl has; none where the run folder was left without it."""
    path = run / METRICS_FILE
    records = read_records(path) if path.exists() else []
    charts = [curve(title, numbers(records, key), from_zero=zero) for key, title, zero in _CURVES]
    charts.append(curve(f"Validation, {metric}", validations(records, metric), from_zero=True))
    return [chart for chart in charts if chart is not None]


def numbers(records: list[dict[str, Any]], key: str) -> list[tuple[int, float]]:
    """(step, value) of every record of a metrics.jsonl that has a number of that name."""
    return [(record["step"], record[key]) for record in records if isinstance(record.get(key), int | float)]


def validations(records: list[dict[str, Any]], metric: str) -> list[tuple[int, float]]:
    """(step, value) of every validation in a metrics.jsonl that measured `metric`."""
    found = [(record["step"], _validation_value(record, metric)) for record in records if "validation" in record]
    return [(step, value) for step, value in found if value is not None]


def _validation_value(record: dict[str, Any], metric: str) -> float | None:
    """None where the run was begun with other settings of `evaluate`, which may change when it goes on."""
    try:
        return metric_value(record["validation"], metric)
    except (KeyError, TypeError, ValueError):
        return None


def _directions(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of the table of metrics, for both directions, and again with dual softmax where it was asked for."""
    titles = {"text_to_video": "Caption looks for its video", "video_to_text": "Video looks for its caption"}
    found = [(title, result[key]) for key, title in titles.items()]
    if "dual_softmax" in result:
        found += [(f"{title}, dual softmax", result["dual_softmax"][key]) for key, title in titles.items()]
    return [{"title": title, **way, "recalls": [name for name in way if name.startswith("R@")]} for title, way in found]


def _between(direction: dict[str, Any], name: str) -> str:
    """The bootstrap's interval of a metric; empty where none was made."""
    if name not in direction["interval"]:
        return ""
    low, high = direction["interval"][name]
    return f"{low:.1%} to {high:.1%}" if name.startswith("R@") else f"{low:.1f} to {high:.1f}"


def _facts(subject: Subject) -> list[tuple[str, str]]:
    config, model = subject.config, subject.model
    trained = sum(parameter.numel() for parameter in model.parameters())
    return [
        ("Store", f"{subject.store.path}, set {subject.data.manifest.name}, split {subject.data.split}"),
        ("Features", f"rows of {subject.data.rows_described}"),
        ("Checkpoint", f"{subject.checkpoint.name}, after {subject.step} steps"),
        ("Model", f"{config.model.video.name} over rows, {config.model.text.name} text tower, {trained:,} parameters"),
        ("Loss", f"{config.loss.name}, {config.order.candidates} candidate captions"),
        ("Training", f"global batch {config.batch_size}, {config.optim.name}, seed {config.seed}, {config.precision}"),
        ("Temperature", f"{float(model.temperature().detach()):.4f}"),
    ]
