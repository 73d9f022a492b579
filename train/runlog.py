"""What a run says: to people on the terminal, to programs in metrics.jsonl. Only rank 0 says anything."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from shared.atomic import replace_file
from shared.errors import DamageFound
from train.config import FitConfig
from train.distributed import World
from train.order import BatchOrder
from train.sources import Sources

METRICS_FILE = "metrics.jsonl"


class RunLog:
    """metrics.jsonl of a run folder: one JSON object a line, with `step` (steps done) and either the numbers of that
    step or a `validation`."""

    def __init__(self, run: Path, active: bool) -> None:
        self._path, self._active = run / METRICS_FILE, active

    def say(self, text: str) -> None:
        if self._active:
            print(text, flush=True)

    def write(self, record: dict[str, Any]) -> None:
        if self._active:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def cut_after(self, step: int) -> None:
        """Drop what an earlier run logged after the checkpoint that this one goes on from."""
        if not self._active or not self._path.exists():
            return
        kept = [record for record in read_records(self._path) if record["step"] <= step]
        replace_file(self._path, "".join(json.dumps(record) + "\n" for record in kept).encode())


def read_records(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl; a last line that a killed run left unfinished is not there yet.

    Raises DamageFound naming the first line that is no record.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamageFound(f"{path} cannot be read: {error.strerror}; move it away") from None
    lines = data.split(b"\n")[:-1]
    return [_record(path, number, line) for number, line in enumerate(lines, start=1)]


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("step"), int):
        raise DamageFound(
            f"{path} line {number} is not a record of `train fit`: the file was changed or damaged. It holds nothing "
            "but the curves: move it away or delete the line, and run the same command again"
        )
    return record


class Meter:
    """Samples a second and the share of time spent waiting for data, since the last `read`."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._waited = 0.0
        self._clips = 0

    def count(self, clips: int, waited_s: float) -> None:
        self._clips += clips
        self._waited += waited_s

    def read(self) -> dict[str, float]:
        """{"samples_per_s", "data_wait"}; starts anew."""
        elapsed = max(time.perf_counter() - self._begin, 1e-9)
        values = {"samples_per_s": self._clips / elapsed, "data_wait": self._waited / elapsed}
        self.restart()
        return values

    def restart(self) -> None:
        """Leave out what happened since the last `read`, as a validation."""
        self._begin, self._waited, self._clips = time.perf_counter(), 0.0, 0


def describe(config: FitConfig, world: World, sources: Sources, order: BatchOrder, total: int, model: nn.Module) -> str:
    """What the run will do, for people to read before it does it."""
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    frozen = sum(parameter.numel() for parameter in model.parameters() if not parameter.requires_grad)
    warmup, first = round(config.schedule.warmup * total), order.steps_before(1)
    return "\n".join(
        [
            *_source_lines(config, world, sources, order),
            *([] if config.negatives is None else [f"remembered {config.negatives.described()}"]),
            f"steps      {total} = {total / first:g} times the {first} of the first epoch ({order.left_out} samples of "
            "it left out)",
            f"rate       {config.optim.name}, peak {config.optim.described(config.batch_size)}",
            f"schedule   {warmup} warm-up steps, then {config.schedule.name}",
            f"parameters {trained:,} trained, {frozen:,} frozen",
            f"run        {config.run}",
        ]
    )


def _source_lines(config: FitConfig, world: World, sources: Sources, order: BatchOrder) -> Iterator[str]:
    """What is trained on, of each store, and in which batches."""
    several = len(sources.datas) > 1
    for number, (source, data) in enumerate(zip(sources.settings, sources.datas, strict=True)):
        shapes = [shape for shape in order.shapes() if shape.source == number]
        sizes, how = [shape.samples for shape in shapes], source.order
        unit = "videos, one window each" if how.unit == "video" else "windows"
        others, ranks = max(sizes) - 1, world.size
        yield (
            f"store      {source.store}, set {source.set}, split {data.split}: {len(data)} windows of "
            f"{len(np.unique(data.windows.video_W))} videos, rows of {data.input_dim} from stream {data.stream.name}"
        )
        if several:
            yield f"turns      {sources.shares[number]:.1%} of the steps, as source {source.name}"
        yield (
            f"batch      {_span(sizes)} {unit} = {ranks} rank(s) x {_span([size // ranks for size in sizes])} "
            f"on {world.device.type}, {config.precision}"
            + (f", each rank's in {config.micro_batches} parts" if config.micro_batches > 1 else "")
        )
        if how.buckets:
            by_length = ", ".join(f"{shape.samples} of up to {shape.rows or shape.tokens}" for shape in shapes)
            yield f"buckets    by {how.buckets.by}: {by_length}"
        yield (
            f"negatives  up to {2 * others * how.candidates} pairs a sample: {others} other clips x {how.candidates} "
            "captions, both ways"
        )


def _span(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
