"""`train compare`: several runs of one data set, each trained if it is not yet, in one table, one page and JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from shared.errors import ClipmillError, RequestError, StoppedEarly
from shared.fingerprint import canonical_json
from shared.store import refuse_inside_store
from train.checkpoint import last_checkpoint, resolve_checkpoint, step_of
from train.compare_page import page
from train.compare_runs import Entry, changed_since, is_trained, open_entries, read_cost, train_missing
from train.compared import Compared, Comparison, Level
from train.distributed import World, distributed_world
from train.embedded import embed_split
from train.evaluate import measured, open_subject
from train.outputs import check_output, write_output
from train.report import numbers, validations
from train.retrieval import check_metric, is_better
from train.runlog import METRICS_FILE, read_records
from train.similarities import similarities

PAGE = "compare.html"


def compare(
    arguments: Sequence[str],
    *,
    train: bool = True,
    best: bool = False,
    split: str | None = None,
    level: str | None = None,
    runs: Path | None = None,
    out: Path | None = None,
) -> tuple[Comparison, Path]:
    """Train what is missing, evaluate all on one split, write the page and, beside it, the same as JSON.

    arguments: configs, folders of them, and key=value for all. train: False takes what is there. best: evaluate each
    run's best checkpoint instead of its last, which no validation chose. split: None for the one that the configs name.
    level: `METRIC=VALUE`; None for the one of `checkpoint.metric` that every run reached. runs: a folder for all run
    folders. out: the page; None for compare.html beside the first run folder.
    Returns what was found, in which a run that failed is a row, and the page's path. Raises RequestError where the
    configs cannot be compared, StoppedEarly after a signal.
    """
    _refuse_ranks()
    entries = open_entries(arguments, runs)
    split = _common(entries, split)
    asked = None if level is None else parse_level(level, entries)
    path = _page_path(entries, out)
    first = entries[0].config
    metric = first.checkpoint.metric if asked is None else asked.metric
    failed = train_missing(entries) if train else {}
    with distributed_world("auto") as world:
        trial = _Trial(world, split, metric, best)
        found = [_row(entry, trial, failed.get(entry.name)) for entry in entries]
    wanted = asked or _reached_by_all(metric, found)
    rows = [replace(row, level_step=None if wanted is None else steps_to(wanted, row.validation)) for row in found]
    result = Comparison(first.store, first.set, split, metric, wanted, rows)
    write_output(path, page(result).encode())
    write_output(path.with_suffix(".json"), canonical_json(result.plain()))
    return result, path


def parse_level(text: str, entries: Sequence[Entry]) -> Level:
    """`text_to_video.R@10=0.4`. Raises RequestError for another form, or a metric that the validations do not have."""
    name, _, number = text.partition("=")
    try:
        value = float(number)
        check_metric(name, entries[0].config.evaluate)
    except ValueError as error:
        raise RequestError(f"--level {text}: {error}; give METRIC=VALUE, as in text_to_video.R@10=0.4") from None
    return Level(name, value)


def steps_to(level: Level, validation: Sequence[tuple[int, float]]) -> int | None:
    """The steps after which a validation first was at the level or better; None where none was."""
    return next((step for step, value in validation if is_better(level.metric, value, level.value)), None)


def _reached_by_all(metric: str, rows: Sequence[Compared]) -> Level | None:
    """The hardest level that every run with a validation reached."""
    higher_is_better = is_better(metric, 1.0, 0.0)
    bests = [(max if higher_is_better else min)(value for _, value in row.validation) for row in rows if row.validation]
    return Level(metric, (min if higher_is_better else max)(bests)) if bests else None


def _refuse_ranks() -> None:
    if "RANK" in os.environ:
        raise RequestError(
            "`train compare` starts its runs itself, one process each: leave torchrun out, or train each config with "
            "torchrun and `train fit` first"
        )


def _common(entries: Sequence[Entry], split: str | None) -> str:
    """The split that all are tried on. Raises RequestError unless all have the same queries and candidates."""
    first = entries[0]
    for entry in entries[1:]:
        for key, mine, other in _what_is_asked(entry, first, split):
            if mine != other:
                raise RequestError(
                    f"{first.path} has {key}={other}, {entry.path} {key}={mine}: their metrics cannot be compared; "
                    f"give {key}=VALUE, which then holds for all"
                )
    split = split or first.config.val_split
    if split is None:
        raise RequestError(f"{first.path} has val_split=null: say with --split what the runs are compared on")
    return split


def _what_is_asked(entry: Entry, first: Entry, split: str | None) -> list[tuple[str, object, object]]:
    mine, other = entry.config, first.config
    settings = [
        (f"evaluate.{key}", value, getattr(other.evaluate, key))
        for key, value in mine.evaluate.model_dump(exclude={"batch_size"}).items()
    ]
    return [
        ("store", os.path.realpath(mine.store), os.path.realpath(other.store)),
        ("set", mine.set, other.set),
        *([] if split else [("val_split", mine.val_split, other.val_split)]),
        ("checkpoint.metric", mine.checkpoint.metric, other.checkpoint.metric),
        *settings,
    ]


def _page_path(entries: Sequence[Entry], out: Path | None) -> Path:
    """Where the page goes, refused before any training where it cannot."""
    for entry in entries:
        refuse_inside_store(entry.config.run, f"the run folder of {entry.path} (its key `run`, or --runs FOLDER)")
    folder = entries[0].config.run.parent
    if out is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError(
                f"folder {folder} of the runs cannot be made: {error.strerror}; give another with --runs FOLDER"
            ) from None
    path = out or folder / PAGE
    if path.suffix == ".json":
        raise RequestError(f"--out {path} is the page, and the same as JSON goes beside it: give a name as {PAGE}")
    for file in (path, path.with_suffix(".json")):
        check_output(file)
    return path


class _Trial(NamedTuple):
    """How every run is tried. metric: of the curves. best: the best checkpoint instead of the last."""

    world: World
    split: str
    metric: str
    best: bool


def _row(entry: Entry, trial: _Trial, failure: str | None) -> Compared:
    if failure is None:
        try:
            return _evaluated(entry, trial)
        except StoppedEarly:
            raise
        except ClipmillError as error:
            failure = str(error)
    return Compared(entry.name, entry.config.run, failure=failure)


def _evaluated(entry: Entry, trial: _Trial) -> Compared:
    run = entry.config.run
    changed = changed_since(entry)
    if changed:
        raise RequestError("the run folder is of another configuration: " + ", ".join(changed))
    last = last_checkpoint(run)
    assert last is not None, "its configuration was just read"
    target = resolve_checkpoint(run) if trial.best else last
    subject = open_subject(target, trial.world, store=entry.config.store, set_name=entry.config.set, split=trial.split)
    config = entry.config.evaluate
    embedded = embed_split(subject.model, subject.data, trial.world, config.batch_size, config.captions)
    log, cost = run / METRICS_FILE, read_cost(run)
    records = read_records(log) if log.exists() else []
    return Compared(
        name=entry.name,
        run=run,
        finished=is_trained(entry),
        checkpoint=subject.checkpoint.name,
        step=subject.step,
        metrics=measured(subject, embedded, config),
        seconds=cost.seconds(step_of(last)),
        peak_memory=cost.peak("peak_memory"),
        peak_cuda=cost.peak("peak_cuda"),
        temperature=float(subject.model.temperature().detach()),
        validation=validations(records, trial.metric),
        loss=numbers(records, "loss"),
        similarities=similarities(embedded, subject.data.windows.video_W),
    )
