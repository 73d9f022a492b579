"""The part of `train plan` that is about a rank's device: what lies there, what is free, how large a queue may be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

import torch

from shared.words import counted
from train.config import FitConfig
from train.data import WindowData
from train.delivery.arrays import BatchShape
from train.distributed import ALONE, DeviceName, World
from train.free_memory import available_bytes
from train.loss_memory import entry_of
from train.measure import Measured, measure
from train.memory import Planned, plan_memory
from train.model import TwoTower, build_model
from train.negatives import BankConfig, MocoConfig, QueueConfig
from train.negatives.config import GIB, AnyNegativesConfig, memory_bytes
from train.negatives.sizing import EntryBytes, largest_queue
from train.optim import freeze_parameters, parameter_groups
from train.precision import check_precision
from train.sharding import check_offload, shards_towers
from train.sources import Sources
from train.teacher import open_teacher
from train.towers import synchronise_norms

# More entries than any matrix that is kept whole has.
_MANY = 1 << 40


def memory_plan(
    config: FitConfig,
    main: WindowData,
    sources: Sources,
    shapes: list[BatchShape],
    *,
    ranks: int,
    memory: int | None,
    measured: bool,
) -> dict[str, Any]:
    """Plain values, sizes in bytes. Arguments as of `plan`. Raises what building a model and a teacher raises, and with
    `measured` what training raises."""
    device = _device(config.device)
    # Before anything is built: models here are for counting, and are gone again when a run begins.
    free = _free_here(device, ranks) if memory is None else memory
    subject = _subject(config, main, sources, shapes, ranks, device)
    planned, crowded = subject.planned(config), subject.planned(_with_many(config))
    ways = measure(config, ranks) if measured else []
    # Even one that remembers nothing is asked for a queue, whose tiles may be larger than those of its batches.
    step = _step_bytes(planned, ways, ranks) + max(0, crowded.step - planned.step)
    return {
        "memory": {
            "device": device.type,
            **asdict(planned),
            "negatives": planned.negatives.held,
            "compared": planned.negatives.compared,
            "planned": planned.total,
            "spread": config.shard if shards_towers(config.shard, ranks) else None,
            "free": free,
            "given": memory is not None,
        },
        "measured": [asdict(way) for way in ways],
        "queue": _queue(config, planned, subject, free=free, model=planned.lasting + step),
    }


class _Subject(NamedTuple):
    """What is counted. teacher: bytes of its towers."""

    model: TwoTower
    shapes: list[BatchShape]
    videos: int
    teacher: int
    ranks: int
    device: torch.device

    def planned(self, config: FitConfig) -> Planned:
        return plan_memory(
            config,
            self.model,
            ranks=self.ranks,
            device=self.device,
            shapes=self.shapes,
            videos=self.videos,
            teacher=self.teacher,
        )

    def entry(self, config: FitConfig, size: int) -> EntryBytes:
        return entry_of(config, self.model, self.shapes, size, self.device)


def _subject(
    config: FitConfig, main: WindowData, sources: Sources, shapes: list[BatchShape], ranks: int, device: torch.device
) -> _Subject:
    world = World(0, ranks, 0, device)
    check_precision(config.precision, device)
    check_offload(config.offload, world)
    model = build_model(config.model, input_dim=main.input_dims, tokens=sources.tokens)
    if config.sync_batch_norm:
        model = synchronise_norms(model, world)
    freeze_parameters(model, config.optim.freeze)
    parameter_groups(model, config.optim, config.optim.peak(config.batch_size))
    teacher = open_teacher(config.loss, main, sources.tokens, ALONE)
    return _Subject(model, shapes, sources.videos, 0 if teacher is None else teacher.bytes, ranks, device)


def _with_many(config: FitConfig) -> FitConfig:
    """The same with a queue, of MoCo's keys where it has such, that no matrix of similarities is kept whole for."""
    kept = config.negatives if isinstance(config.negatives, MocoConfig) else QueueConfig(size=_MANY)
    return config.model_copy(update={"negatives": kept.model_copy(update={"size": _MANY})})


def _device(name: DeviceName) -> torch.device:
    """Where the config would train; a GPU that it names need not be here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def _free_here(device: torch.device, ranks: int) -> int | None:
    """Bytes for one rank: each has a GPU of its own, while all share the memory of a host; None for a GPU that is not
    here."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] if torch.cuda.is_available() else None
    return available_bytes() // ranks


def _step_bytes(planned: Planned, ways: list[Measured], ranks: int) -> int:
    """What a step adds to what lasts, remembered negatives left out."""
    if not ways:
        return planned.step
    measured = max(0, ways[0].peak - planned.negatives.compared)
    # One process has compared one rank's clips with their own captions, not with those of all ranks.
    return measured if ranks == 1 else max(measured, planned.step)


def _queue(config: FitConfig, planned: Planned, subject: _Subject, *, free: int | None, model: int) -> dict[str, Any]:
    """model: bytes of everything but remembered negatives."""
    room = free if free is not None else model
    entry = subject.entry(config, _MANY)
    largest = largest_queue(room, model, entry)
    # So few that their similarities are kept whole take more each.
    few = subject.entry(config, largest)
    if few != entry:
        entry, largest = few, largest_queue(room, model, few)
    return {
        "dim": entry.dim,
        "bytes_an_entry": entry.total,
        "model": model,
        "largest": None if free is None else largest,
        **_limit(config, entry),
        "rule": None if free is None else entry.rule(free, model),
        "configured": None
        if config.negatives is None
        else _configured(config.negatives, planned, subject, free, model),
    }


def _limit(config: FitConfig, entry: EntryBytes) -> dict[str, Any]:
    """What training allows to be remembered, whatever is free."""
    limit = (config.negatives or QueueConfig(size=1)).limit_gib
    return {"limit_gib": limit, "allowed": int(limit * GIB) // memory_bytes(1, entry.dim, entry.itemsize)}


def _configured(
    negatives: AnyNegativesConfig, planned: Planned, subject: _Subject, free: int | None, model: int
) -> dict[str, Any]:
    needed = planned.negatives.held + planned.negatives.compared
    rows = subject.videos if isinstance(negatives, BankConfig) else negatives.size
    itemsize = next(subject.model.parameters()).element_size()
    return {
        "name": negatives.name,
        "size": negatives.size,
        "bytes": needed,
        "fits": None if free is None else model + needed <= free,
        "limit_gib": negatives.limit_gib,
        "within_limit": memory_bytes(rows, subject.model.dim, itemsize) <= negatives.limit_gib * GIB,
    }


def memory_lines(found: dict[str, Any]) -> list[str]:
    """For a terminal: what `memory_plan` found, in the plan that it is a part of."""
    return [*_held_lines(found["memory"], found["ranks"]), *map(_way_line, found["measured"]), *_queue_lines(found)]


def _held_lines(memory: dict[str, Any], ranks: int) -> Iterator[str]:
    spread = memory["spread"] is not None
    bound = "at most" if spread else "at least"
    buckets = "; DDP's buckets hold them, and take nothing more" if ranks > 1 and not spread else ""
    if spread:
        yield f"memory     at most: shard={memory['spread']} spreads what follows, but all of it is counted"
    yield f"parameters {_mib(memory['parameters'])}, {_mib(memory['frozen'])} of it frozen"
    yield f"gradients  {_mib(memory['gradients'])}{buckets}"
    yield f"optimizer  {_mib(memory['optimizer'])} of state, {_mib(memory['update'])} more during its update"
    for name in ("keys", "teacher"):
        if memory[name]:
            yield f"{name:10} {_mib(memory[name])}: towers beside the model"
    if memory["negatives"]:
        yield f"negatives  {_mib(memory['negatives'])} remembered, {_mib(memory['compared'])} laid out for the loss"
    yield f"logits     {_mib(memory['logits'])} in the backward of the loss"
    yield (
        f"planned    {bound} {_mib(memory['planned'])} on each rank's {memory['device']}, with "
        f"{_mib(memory['batches'])} of batches; what the towers keep for the gradient comes on top (--measure)"
    )


def _way_line(way: dict[str, Any]) -> str:
    text = (
        f"measured   {way['seconds']:.3g} s a step of {counted(way['clips'], 'clip')}, at most {_mib(way['peak'])} "
        "beside what lasts from step to step"
    )
    if way["micro_batches"] > 1:
        text += f", micro_batches={way['micro_batches']}"
    if way["checkpointing"] is not None:
        return f"{text}, model.text.checkpointing={str(way['checkpointing']).lower()}"
    return f"{text}; no text encoder learns, so checkpointing would save nothing"


def _queue_lines(found: dict[str, Any]) -> Iterator[str]:
    queue, memory = found["queue"], found["memory"]
    if queue["largest"] is None:
        yield "queue      there is no GPU here to ask how much is free: give --memory-gib for the largest queue"
    else:
        counted_as = "measured" if found["measured"] else "planned"
        where = "given" if memory["given"] else "free now"
        text = (
            f"queue      at most {queue['largest']:,} videos and as many captions: {queue['rule']}; free as {where}, "
            f"model as {counted_as}"
        )
        if queue["largest"] > queue["allowed"]:
            text += (
                f". negatives.limit_gib={queue['limit_gib']:g} allows no more than {queue['allowed']:,}, training "
                "refuses others: raise it for a larger one"
            )
        yield text
    if memory["given"] and memory["device"] == "cpu":
        yield (
            "           the memory given is taken for each rank's part of this host's: the run would train on its CPU; "
            "device=cuda plans for a GPU, also for one that is not here"
        )
    configured = queue["configured"]
    if configured is not None:
        fits = {True: "fits", False: "does not fit", None: "takes"}[configured["fits"]]
        text = f"           negatives.name={configured['name']}, size={configured['size']:,} {fits}: "
        text += _mib(configured["bytes"])
        if not configured["within_limit"]:
            text += f"; above negatives.limit_gib={configured['limit_gib']:g}, training refuses it"
        yield text


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB"
