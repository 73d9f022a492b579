"""What a run holds on the device of each rank: counted from its model and config, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from train.config import FitConfig
from train.delivery.arrays import BatchShape
from train.delivery.ring import slot_bytes
from train.delivery.sizing import ring_slots
from train.loss_memory import drawn, entry_of, loss_bytes
from train.model import TwoTower
from train.negatives import MocoConfig
from train.negatives.sizing import Remembered, remembered_bytes
from train.optim import parameter_groups, state_bytes


@dataclass(frozen=True)
class Planned:
    """Bytes on the device of one rank; of an optimizer that is spread over ranks, those of the rank with the most.

    parameters: of the model, buffers among them; frozen: of these, what does not learn. gradients: with several ranks
    they lie in DDP's buckets, which need nothing beside them. optimizer: what it remembers. keys: MoCo's copy of the
    towers. teacher: a teacher's towers. batches: on a GPU the largest one, on a CPU the ring of those made ahead.
    negatives: what is remembered of earlier batches. logits: of the loss, in its backward. update: what the optimizer's
    update makes and drops again, at most.

    What the towers keep for the gradient is not in here: that is measured, not counted.
    """

    parameters: int
    frozen: int
    gradients: int
    optimizer: int
    keys: int
    teacher: int
    batches: int
    negatives: Remembered
    logits: int
    update: int

    @property
    def lasting(self) -> int:
        """From step to step, without remembered negatives."""
        return self.parameters + self.optimizer + self.keys + self.teacher + self.batches

    @property
    def step(self) -> int:
        """What a step adds, towers and remembered negatives left out: the loss and the update follow each other."""
        return self.gradients + max(self.logits, self.update)

    @property
    def total(self) -> int:
        return self.lasting + self.step + self.negatives.held + self.negatives.compared


def plan_memory(
    config: FitConfig,
    model: TwoTower,
    *,
    ranks: int,
    device: torch.device,
    shapes: Sequence[BatchShape],
    videos: int,
    teacher: int,
) -> Planned:
    """model: on any device, with frozen parameters frozen. shapes: that a rank's batches may have. videos: of all
    sources. teacher: bytes of its towers."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = tensor_bytes(learning)
    parameters, buffers = tensor_bytes(model.parameters()), tensor_bytes(model.buffers())
    entries = 0 if config.negatives is None else drawn(config.negatives, videos)
    entry = entry_of(config, model, shapes, entries, device)
    return Planned(
        parameters=parameters + buffers,
        frozen=parameters - gradients,
        gradients=gradients,
        optimizer=_optimizer_bytes(config, model, ranks),
        keys=gradients + buffers if isinstance(config.negatives, MocoConfig) else 0,
        teacher=teacher,
        batches=_batch_bytes(config, shapes, device),
        negatives=remembered_bytes(config.negatives, entry, videos),
        logits=max(loss_bytes(config, shape, model.dim, ranks, device, videos) for shape in shapes),
        # On a GPU all parameters of a group are updated in one go, on a CPU one after another (torch's `foreach`).
        update=gradients if device.type == "cuda" else 2 * max(map(_bytes, learning), default=0),
    )


def tensor_bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(map(_bytes, tensors))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _optimizer_bytes(config: FitConfig, model: nn.Module, ranks: int) -> int:
    """Of the rank with the most. ZeroRedundancyOptimizer gives each parameter, the largest of each group first, to the
    rank that has the fewest numbers so far."""
    among = ranks if config.shard == 1 else 1
    numbers, of_rank = [0] * among, [0] * among
    for group in parameter_groups(model, config.optim, config.optim.lr):
        for parameter in sorted(group["params"], key=torch.Tensor.numel, reverse=True):
            rank = numbers.index(min(numbers))
            numbers[rank] += parameter.numel()
            of_rank[rank] += state_bytes(config.optim, parameter)
    return max(of_rank)


def _batch_bytes(config: FitConfig, shapes: Sequence[BatchShape], device: torch.device) -> int:
    if device.type == "cuda":
        return max(shape.bytes for shape in shapes)
    return ring_slots(config.data.workers, config.data.prefetch) * max(map(slot_bytes, shapes))
