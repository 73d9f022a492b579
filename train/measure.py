"""What a training step takes, from real steps on real batches; nothing of them is kept or written."""

from __future__ import annotations

import gc
import statistics
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn import functional as F

from shared.errors import RequestError
from train.batch import Batch
from train.config import FitConfig
from train.delivery.arrays import BatchShape
from train.determinism import deterministic_algorithms
from train.distributed import World, distributed_world
from train.model.text_tower import BertConfig
from train.negatives import BankConfig
from train.negatives.fresh import Fresh
from train.parts import Parts, build_parts
from train.step import TrainStep
from train.tensor_peak import TensorPeak

# Steps whose time is taken, after those that warm up.
TIMED = 3
# Batches of the first epoch, evenly spaced, among which the largest are looked for.
_LOOKED_AT = 500


@dataclass(frozen=True)
class Measured:
    """checkpointing: whether the text tower computed its layers again for the gradient; None for one that cannot.

    seconds: of a step, the median, its batch already there. peak: bytes that a step takes at most beside what lasts
    from step to step: gradients, what the towers keep for them, the loss, what it lays out of remembered negatives, the
    update; on a CPU of tensors (`TensorPeak`), on a GPU of what torch's allocator gave out. micro_batches: that each
    step took, more than were asked for where memory ran out. clips: of a step.
    """

    checkpointing: bool | None
    seconds: float
    peak: int
    micro_batches: int
    clips: int


def measure(config: FitConfig, ranks: int) -> list[Measured]:
    """Of the config as it is; then, where its text tower is an encoder that learns, with checkpointing the other way.

    ranks: that share a batch; measured is one rank's part, in this process, which compares its clips with its own
    alone. What a config remembers is full. Towers are not compiled.

    Raises what training raises, and RequestError under torchrun, and for an encoder that cannot be checkpointed.
    """
    found = []
    with (
        deterministic_algorithms(config.deterministic),
        distributed_world(config.device, config.timeout_s) as world,
    ):
        if world.size > 1:
            raise RequestError(
                f"train plan --measure was started on {world.size} ranks: it measures one rank's part in one process; "
                f"start it without torchrun, with --ranks {world.size}"
            )
        for one in _ways(config.model_copy(update={"compile": False})):
            found.append(_measured(one, ranks, world))
            # Modules and their hooks hold each other: the next one is to have all of the memory.
            gc.collect()
    return found


def _ways(config: FitConfig) -> list[FitConfig]:
    text = config.model.text
    if not isinstance(text, BertConfig) or text.frozen:
        return [config]
    other = text.model_copy(update={"checkpointing": not text.checkpointing})
    return [config, config.model_copy(update={"model": config.model.model_copy(update={"text": other})})]


def _measured(config: FitConfig, ranks: int, world: World) -> Measured:
    parts = build_parts(config, world, ranks)
    step = parts.step(lambda _: None)
    _fill(parts)
    largest = _largest_batches(parts, ranks)
    for number in largest:
        step(_batch(parts, number, ranks), number)
    seconds = []
    for number in range(min(TIMED, _steps(parts))):
        batch = _batch(parts, number, ranks)
        _wait(world)
        begin = time.perf_counter()
        step(batch, number)
        _wait(world)
        seconds.append(time.perf_counter() - begin)
    peaks = [_peak(step, _batch(parts, number, ranks), number, world) for number in largest]
    text = config.model.text
    return Measured(
        checkpointing=text.checkpointing if isinstance(text, BertConfig) and not text.frozen else None,
        seconds=statistics.median(seconds),
        peak=max(peaks),
        micro_batches=step.micro_batches.number,
        clips=parts.order.largest // ranks,
    )


def _steps(parts: Parts) -> int:
    return min(parts.total, parts.order.steps_before(1))


def _largest_batches(parts: Parts, ranks: int) -> list[int]:
    """Numbers of a batch with the most rows, and of one with the most tokens: which takes more, the towers decide."""
    numbers = np.unique(np.linspace(0, _steps(parts) - 1, min(_steps(parts), _LOOKED_AT)).astype(np.int64)).tolist()
    shapes = [_shape(parts, number, ranks) for number in numbers]
    rows = [shape.clips * shape.rows for shape in shapes]
    tokens = [shape.clips * shape.candidates * shape.tokens for shape in shapes]
    return sorted({numbers[rows.index(max(rows))], numbers[tokens.index(max(tokens))]})


def _shape(parts: Parts, number: int, ranks: int) -> BatchShape:
    selection = parts.order.batch(number).part(0, ranks)
    return parts.sources.datas[selection.source].shape_of(selection)


def _batch(parts: Parts, number: int, ranks: int) -> Batch:
    """The first rank's part of global batch `number`, on the device."""
    selection = parts.order.batch(number).part(0, ranks)
    batch = parts.sources.datas[selection.source].batch(selection)
    ids_B = batch.video_ids_B + parts.sources.offsets[selection.source]
    return replace(batch, video_ids_B=ids_B).to(parts.world.device)


def _fill(parts: Parts) -> None:
    """As if the run had gone on for long: a memory that is full takes the most."""
    config, device = parts.config.negatives, parts.world.device
    if config is None or parts.negatives is None:
        return
    if isinstance(config, BankConfig):
        ids_N = torch.arange(parts.sources.videos, device=device)
    else:
        # Of no video that there is, so that none is left out.
        ids_N = parts.sources.videos + torch.arange(config.size, device=device)
    vector_ND = F.normalize(torch.randn(len(ids_N), parts.model.dim, device=device), dim=-1)
    mask_N1 = torch.ones(len(ids_N), 1, dtype=torch.bool, device=device)
    parts.negatives.after_step(Fresh(vector_ND, vector_ND[:, None], mask_N1, ids_N), parts.model)


def _peak(step: TrainStep, batch: Batch, number: int, world: World) -> int:
    step.optimizer.zero_grad(set_to_none=True)
    if world.device.type != "cuda":
        tensors = TensorPeak()
        with tensors:
            step(batch, number)
        return tensors.peak
    _wait(world)
    before = torch.cuda.memory_allocated(world.device)
    torch.cuda.reset_peak_memory_stats(world.device)
    step(batch, number)
    _wait(world)
    most: int = torch.cuda.max_memory_allocated(world.device)
    return most - before


def _wait(world: World) -> None:
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)
