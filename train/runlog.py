"""What a run says: to people on the terminal, to programs in metrics.jsonl. Only rank 0 says anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shared.atomic import disk_full_stops, replace_file
from shared.errors import DamageFound
from train.health import Sign
from train.memory import plan_memory
from train.parts import Parts
from train.sharding import described, shards_towers
from train.tensorboard_files import TensorBoardFiles

METRICS_FILE = "metrics.jsonl"
# Four places show fewer than three digits of less.
_FEW_PLACES = 1e-3


class RunLog:
    """metrics.jsonl of a run folder: one JSON object a line, with `step` (steps done) and the numbers of that step, a
    `validation`, or a `warning` ({"kind", "message"}).

    tensorboard: whether `begin` also opens files for TensorBoard. Close it when the run ends, however it ends.
    """

    def __init__(self, run: Path, active: bool, tensorboard: bool = False) -> None:
        self._run, self._path, self._active = run, run / METRICS_FILE, active
        self._wants_board = active and tensorboard
        self._board: TensorBoardFiles | None = None

    def say(self, text: str) -> None:
        if self._active:
            print(text, flush=True)

    def write(self, record: dict[str, Any]) -> None:
        if self._active:
            with disk_full_stops(self._path), self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        if self._board is not None:
            self._board.write(record)

    def warn(self, step: int, signs: Sequence[Sign]) -> None:
        """Say and write what began to be wrong."""
        for sign in signs:
            self.say(f"warning: step {step}: {sign.message}")
            self.write({"step": step, "warning": {"kind": sign.kind, "message": sign.message}})

    def begin(self, done: int) -> None:
        """Drop what an earlier run logged after the checkpoint of `done` steps that this one goes on from.

        Raises DamageFound for a metrics.jsonl that is none, EnvironmentLacking where TensorBoard is absent.
        """
        if self._active and self._path.exists():
            kept = [record for record in read_records(self._path) if record["step"] <= done]
            replace_file(self._path, "".join(json.dumps(record) + "\n" for record in kept).encode())
        if self._wants_board:
            self._board = TensorBoardFiles(self._run, done)

    def flush(self) -> None:
        """What was written is in the files, also if the process is killed now."""
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        if self._board is not None:
            self._board.close()


def loss_words(loss: float) -> str:
    """For the terminal: four places, or where these would be few, three digits."""
    return f"{loss:.4f}" if abs(loss) >= _FEW_PLACES or loss == 0 else f"{loss:.3g}"


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


def describe(parts: Parts) -> str:
    """What the run will do, for people to read before it does it."""
    config, order, total = parts.config, parts.order, parts.total
    trained = sum(parameter.numel() for parameter in parts.model.parameters() if parameter.requires_grad)
    frozen = sum(parameter.numel() for parameter in parts.model.parameters() if not parameter.requires_grad)
    warmup, first = round(config.schedule.warmup * total), order.steps_before(1)
    videos = sum(len(np.unique(data.windows.video_W)) for data in parts.sources.datas)
    spread = described(config.shard, config.offload, parts.world)
    return "\n".join(
        [
            *_source_lines(parts),
            *([] if config.negatives is None else [f"remembered {config.negatives.described(videos)}"]),
            f"steps      {total} = {total / first:g} times the {first} of the first epoch ({order.left_out} samples of "
            "it left out)",
            f"rate       {config.optim.name}, peak {config.optim.described(config.batch_size)}",
            f"schedule   {warmup} warm-up steps, then {config.schedule.name}",
            f"parameters {trained:,} trained, {frozen:,} frozen",
            *([] if spread is None else [f"spread     {spread}"]),
            _memory_line(parts),
            f"run        {config.run}",
        ]
    )


def _memory_line(parts: Parts) -> str:
    """As `train plan` counts it."""
    ranks, device = parts.world.size, parts.world.device
    planned = plan_memory(
        parts.config,
        parts.model,
        ranks=ranks,
        device=device,
        shapes=parts.sources.shapes(parts.order, ranks),
        videos=parts.sources.videos,
        teacher=0 if parts.teacher is None else parts.teacher.bytes,
    )
    counts = {
        "parameters": planned.parameters,
        "gradients": planned.gradients,
        "optimizer": planned.optimizer,
        "other towers": planned.keys + planned.teacher,
        "batches": planned.batches,
        "negatives": sum(planned.negatives),
    }
    bound = "at most" if shards_towers(parts.config.shard, ranks) else "at least"
    shown = ", ".join(f"{name} {count / (1 << 20):,.1f}" for name, count in counts.items() if count)
    return (
        f"memory     planned: {bound} {planned.total / (1 << 20):,.1f} MiB on each rank's {device.type} ({shown}); "
        "what the towers keep for the gradient comes on top (train plan --measure)"
    )


def _source_lines(parts: Parts) -> Iterator[str]:
    """What is trained on, of each store, and in which batches."""
    config, world, sources, order = parts.config, parts.world, parts.sources, parts.order
    several = len(sources.datas) > 1
    for number, (source, data) in enumerate(zip(sources.settings, sources.datas, strict=True)):
        shapes = [shape for shape in order.shapes() if shape.source == number]
        sizes, how = [shape.samples for shape in shapes], source.order
        unit = "videos, one window each" if how.unit == "video" else "windows"
        others, ranks = max(sizes) - 1, world.size
        yield (
            f"store      {source.store}, set {source.set}, split {data.split}: {len(data)} windows of "
            f"{len(np.unique(data.windows.video_W))} videos, rows of {data.rows_described}"
        )
        if several:
            yield f"turns      {sources.shares[number]:.1%} of the steps, as source {source.name}"
        yield (
            f"batch      {_span(sizes)} {unit} = {ranks} rank(s) x {_span([size // ranks for size in sizes])} "
            f"on {world.device.type}, {config.precision}" + _in_parts(config.micro_batches, max(sizes) // ranks)
        )
        if how.buckets:
            by_length = ", ".join(f"{shape.samples} of up to {shape.rows or shape.tokens}" for shape in shapes)
            yield f"buckets    by {how.buckets.by}: {by_length}"
        yield (
            f"negatives  up to {2 * others * how.candidates} pairs a sample: {others} other clips x {how.candidates} "
            "captions, both ways"
        )


def _in_parts(micro_batches: int, clips: int) -> str:
    if micro_batches == 1:
        return ""
    cut = f", each rank's in {min(micro_batches, clips)} parts"
    return cut if micro_batches <= clips else f"{cut} of one clip (micro_batches={micro_batches} asks for more)"


def _span(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
