"""The model as a step runs it: through DDP where there are several ranks, in the run's precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from train.checkpoint import random_state, set_random_state
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

    def rehearse(self, inputs: Inputs) -> None:
        """Forward and backward of this rank alone; leaves nothing behind, even where it raises torch.OutOfMemoryError.

        Batch norms use their stored statistics: they would change these, and synchronised ones would wait for others.
        """
        state = random_state(self.device)
        norms = [module for module in self._model.modules() if isinstance(module, _BatchNorm) and module.training]
        for norm in norms:
            norm.eval()
        try:
            with self.autocast():
                made = self._model(*inputs)
            outputs = [x for x in made if x is not None and x.requires_grad]
            torch.autograd.backward(outputs, [torch.zeros_like(x) for x in outputs])
        finally:
            for norm in norms:
                norm.train()
            set_random_state(state, self.device)
            self._model.zero_grad(set_to_none=True)

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
