"""The model as a step runs it: through DDP where there are several ranks, in the run's precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from train.distributed import World
from train.model import Embeddings, TwoTower
from train.precision import Precision, autocast


class Inputs(NamedTuple):
    """What the model takes, as `train.batch.Batch` describes it, of this rank's clips or some of them."""

    video_BTD: torch.Tensor
    video_mask_BT: torch.Tensor
    tokens_BKL: torch.Tensor
    token_mask_BKL: torch.Tensor
    caption_mask_BK: torch.Tensor

    def rows(self, rows: slice) -> Inputs:
        return Inputs(*(x[rows] for x in self))


class Towers:
    """Calls give embeddings with their graph; the gradients of a backward are the mean over ranks."""

    def __init__(self, model: TwoTower, world: World, precision: Precision) -> None:
        self._model, self._world, self._precision = model, world, precision
        self._forward = _wrap(model, world)

    @property
    def device(self) -> torch.device:
        return self._world.device

    def __call__(self, inputs: Inputs) -> Embeddings:
        with self.autocast():
            made: Embeddings = self._forward(*inputs)
        return made

    @torch.no_grad()
    def constants(self, inputs: Inputs) -> Embeddings:
        """The same without a graph."""
        with self.autocast():
            made: Embeddings = self._model(*inputs)
        # Within a caller's autocast, weights that were cast here would be used again, and get no gradient.
        torch.clear_autocast_cache()
        return made

    def autocast(self) -> AbstractContextManager[object]:
        return autocast(self._world.device, self._precision)

    def no_sync(self) -> AbstractContextManager[object]:
        """Forwards and backwards in here leave gradients on their rank, for the next backward outside to average."""
        if isinstance(self._forward, DistributedDataParallel):
            return self._forward.no_sync()
        return nullcontext()


def _wrap(model: TwoTower, world: World) -> nn.Module:
    if world.size == 1:
        return model
    return DistributedDataParallel(model, gradient_as_bucket_view=True)
