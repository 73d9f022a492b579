"""Linear probe: how far stored features tell classes apart, as action recognition on HMDB-51 is reported.

The protocol of the MIL-NCE paper (Miech et al. 2020, section 4.3) and its release: a linear SVM, C = 100, on several
rows of each video. Each row of a training video is a sample of its own; of a test video the scores of all rows are
added, and the highest sum is the answer. Once for each split of the data set.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from shared.config import Config
from shared.errors import InputFileError, RequestError
from shared.features import StreamReader
from shared.store import open_store
from train.bootstrap import resample_counts

TRAIN, TEST = "train", "test"
Column = Annotated[str, Field(min_length=1)]


class ProbeConfig(Config):
    """task: what is measured. store, stream: the rows. out: the file that is written.

    labels: a CSV with `video_id`, `label` and a column for each split, whose cells are `train`, `test` or anything else
    for videos that it leaves out; the input manifest that `preprocess adapt hmdb51` writes is one. splits: those
    columns. C: of the SVM. rows: rows of each video, evenly spaced, each from the middle of its part; null for all.
    normalise: whether rows are L2-normalised first. max_iterations: after which a split is told as not converged.
    seed: of the solver and the intervals. bootstrap: resamples of the test videos for the intervals, 0 for none.
    confidence: of the intervals.
    """

    task: Literal["linear_probe"]
    store: Path
    stream: str
    labels: Path
    out: Path
    splits: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=("split1", "split2", "split3"), min_length=1
    )
    C: float = Field(default=100.0, gt=0)
    rows: int | None = Field(default=10, ge=1)
    normalise: bool = False
    max_iterations: int = Field(default=1000, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**31)
    bootstrap: int = Field(default=1000, ge=0, le=100_000)
    confidence: float = Field(default=0.95, gt=0, lt=1)


@dataclass(frozen=True)
class Labelled:
    """Videos of the label file that have rows. parts: for each split column, the cell of each video."""

    video_V: np.ndarray
    class_V: np.ndarray
    classes: list[str]
    parts: dict[str, np.ndarray]
    without_rows: int


def probe(config: ProbeConfig) -> dict[str, Any]:
    """Accuracy on every split and their mean, as plain JSON values; shares in [0, 1].

    Raises RequestError where store, stream or labels do not fit together, InputFileError for a label file that cannot
    be read, DamageFound.
    """
    stream = open_store(config.store).stream(config.stream)
    if stream.entry.kind != "features" or len(stream.row_shape) != 1:
        raise RequestError(
            f"stream {config.stream!r} of {config.store} holds {stream.entry.kind} of shape {stream.row_shape}; a "
            "linear probe needs features, one vector a row: give another with stream=NAME"
        )
    labelled = read_labels(config.labels, config.splits, stream)
    results = {name: _one_split(stream, labelled, name, config) for name in config.splits}
    return {
        "task": config.task,
        "stream": {"name": stream.name, "fingerprint": stream.fingerprint, "dim": stream.row_shape[0]},
        "classes": len(labelled.classes),
        "videos_without_rows": labelled.without_rows,
        "settings": config.model_dump(mode="json", exclude={"task", "store", "stream", "labels", "out"}),
        "splits": results,
        "accuracy": float(np.mean([result["accuracy"] for result in results.values()])),
    }


def read_labels(path: Path, splits: Sequence[str], stream: StreamReader) -> Labelled:
    """Labels and splits of the videos that the stream has rows of. Raises InputFileError, RequestError."""
    rows = _read_rows(path, ("video_id", "label", *splits))
    number_V = stream.index_of([row["video_id"] for row in rows])
    held = [(row, int(number)) for row, number in zip(rows, number_V, strict=True) if number >= 0 and row["label"]]
    if not held:
        raise RequestError(
            f"none of the {len(rows)} videos in {path} has a label and rows in stream {stream.name!r} of "
            f"{stream.store}; it has videos such as {', '.join(map(repr, stream.video_ids[:3])) or 'none'}: give the "
            "labels of this store's own input manifest"
        )
    classes = sorted({row["label"] for row, _ in held})
    place = {label: number for number, label in enumerate(classes)}
    return Labelled(
        np.array([number for _, number in held], np.int64),
        np.array([place[row["label"]] for row, _ in held], np.int64),
        classes,
        {name: np.array([row[name].strip() for row, _ in held]) for name in splits},
        sum(1 for row in rows if row["label"]) - len(held),
    )


def _read_rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, restval="")
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise InputFileError(
                    f"label file {path} has no column {missing[0]!r}, only {list(reader.fieldnames or ())}; expected "
                    f"{', '.join(columns)}: `python -m preprocess adapt hmdb51` writes such a file, splits=[...] "
                    "names other columns"
                )
            return list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputFileError(f"label file {path} cannot be read: {error}; expected a CSV in UTF-8") from None


def _one_split(stream: StreamReader, labelled: Labelled, name: str, config: ProbeConfig) -> dict[str, Any]:
    part_V = labelled.parts[name]
    train_V, test_V = np.flatnonzero(part_V == TRAIN), np.flatnonzero(part_V == TEST)
    learned = np.unique(labelled.class_V[train_V])
    if len(learned) < 2 or len(test_V) == 0:
        raise RequestError(
            f"column {name!r} gives {len(train_V)} videos of {len(learned)} classes to train on and {len(test_V)} to "
            f"test; expected at least two classes and one test video among the cells {TRAIN!r} and {TEST!r}"
        )
    rows_ND, owner_N = sampled_rows(stream, labelled.video_V[train_V], config.rows, config.normalise)
    machine, converged = _fit(rows_ND, labelled.class_V[train_V][owner_N], config)
    score_VC = summed_scores(machine, stream, labelled.video_V[test_V], config)
    truth_V = labelled.class_V[test_V]
    order_VC = machine.classes_[np.argsort(-score_VC, axis=1, kind="stable")]
    hit_V, hit5_V = order_VC[:, 0] == truth_V, (order_VC[:, :5] == truth_V[:, None]).any(axis=1)
    return {
        "accuracy": float(hit_V.mean()),
        "accuracy_top5": float(hit5_V.mean()),
        "mean_class_accuracy": float(np.mean([hit_V[truth_V == label].mean() for label in np.unique(truth_V)])),
        "interval": _interval(hit_V, config),
        "chance": 1 / len(learned),
        "train_videos": len(train_V),
        "train_rows": len(rows_ND),
        "test_videos": len(test_V),
        "converged": converged,
    }


def sampled_rows(
    stream: StreamReader, video_V: np.ndarray, rows: int | None, normalise: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(float32 (N, D), int64 (N,)): rows of each video, and the place in `video_V` that each belongs to."""
    held_V = stream.rows_per_video[video_V]
    taken_V = held_V if rows is None else np.minimum(held_V, rows)
    owner_N = np.repeat(np.arange(len(video_V)), taken_V)
    within_N = np.arange(len(owner_N)) - np.repeat(np.cumsum(taken_V) - taken_V, taken_V)
    # The middle of each of as many equal parts as rows are taken: all rows, one by one, where all are.
    row_N = ((2 * within_N + 1) * held_V[owner_N]) // (2 * taken_V[owner_N])
    found_N1D, _ = stream.gather(video_V[owner_N], row_N, np.ones(len(owner_N), np.int64), 1)
    rows_ND = found_N1D[:, 0].astype(np.float32)
    if normalise:
        rows_ND /= np.linalg.norm(rows_ND, axis=1, keepdims=True)
    return rows_ND, owner_N


def _fit(rows_ND: np.ndarray, class_N: np.ndarray, config: ProbeConfig) -> tuple[LinearSVC, bool]:
    machine = LinearSVC(C=config.C, random_state=config.seed, max_iter=config.max_iterations)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # told as `converged`
        machine.fit(rows_ND, class_N)
    return machine, bool(machine.n_iter_ < config.max_iterations)


def summed_scores(machine: LinearSVC, stream: StreamReader, video_V: np.ndarray, config: ProbeConfig) -> np.ndarray:
    """float64 (V, classes): the sum of the scores of a video's rows."""
    rows_ND, owner_N = sampled_rows(stream, video_V, config.rows, config.normalise)
    score_NC = machine.decision_function(rows_ND)
    if score_NC.ndim == 1:  # two classes have one score, positive for the second
        score_NC = np.stack([-score_NC, score_NC], axis=1)
    total_VC = np.zeros((len(video_V), score_NC.shape[1]))
    np.add.at(total_VC, owner_N, score_NC)
    return total_VC


def _interval(hit_V: np.ndarray, config: ProbeConfig) -> list[float] | None:
    """The central part of the accuracy under resampling of the test videos; None where it is not asked for."""
    if config.bootstrap == 0:
        return None
    count_RV = resample_counts(range(config.bootstrap), len(hit_V), config.seed)
    drawn_R = (count_RV @ hit_V) / len(hit_V)
    low, high = np.quantile(drawn_R, [(1 - config.confidence) / 2, (1 + config.confidence) / 2])
    return [float(low), float(high)]


def table(result: dict[str, Any]) -> str:
    """The result for a terminal, in percent."""
    stream = result["stream"]
    lines = [
        f"linear probe of stream {stream['name']} ({stream['dim']} channels), {result['classes']} classes, "
        f"{result['videos_without_rows']} labelled videos without rows"
    ]
    for name, split in result["splits"].items():
        low_high = "" if split["interval"] is None else " [{:.2%}, {:.2%}]".format(*split["interval"])
        warning = "" if split["converged"] else "  not converged: raise max_iterations"
        lines.append(
            f"  {name:<8} top-1 {split['accuracy']:7.2%}{low_high}  top-5 {split['accuracy_top5']:.2%}  mean over "
            f"classes {split['mean_class_accuracy']:.2%}  chance {split['chance']:.2%}  "
            f"{split['train_videos']} + {split['test_videos']} videos{warning}"
        )
    lines.append(f"  mean     top-1 {result['accuracy']:7.2%}")
    return "\n".join(lines)
