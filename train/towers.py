"""The model as a step runs it: through DDP or spread where there are several ranks, in the run's precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from shared.config import Config
from shared.errors import RequestError
from train.checkpoint import random_state, set_random_state
from train.distributed import World
from train.model import Embeddings, TwoTower
from train.precision import Precision, autocast
from train.sharded_towers import ShardedTowers


class DdpConfig(Config):
    """bucket_cap_mb: MiB of gradients that ranks average in one go; refused with shard 2 and 3, which do without DDP.
    static_graph: every step uses the same parameters in the same order, which saves DDP from looking; refused with
    shard 2 and 3.
    find_unused_parameters: whether DDP looks, in every step, for parameters that the embeddings do not depend on;
    `auto` where the first batch shows such. `true` is for towers that use other parameters from batch to batch, with
    shard 2 and 3, too.
    """

    bucket_cap_mb: int = Field(default=25, ge=1)
    static_graph: bool = False
    find_unused_parameters: Literal["auto"] | bool = "auto"


class Inputs(NamedTuple):
    """What the model takes, as `train.batch.Batch` describes it, of this rank's clips or some of them."""

    video_BTD: torch.Tensor
    video_mask_BT: torch.Tensor
    tokens_BKL: torch.Tensor
    token_mask_BKL: torch.Tensor
    caption_mask_BK: torch.Tensor
    caption_BKE: torch.Tensor | None = None

    def rows(self, rows: slice) -> Inputs:
        some = Inputs(*(x[rows] for x in self[:-1]))
        return some if self.caption_BKE is None else some._replace(caption_BKE=self.caption_BKE[rows])


class Towers:
    """Calls give embeddings with their graph; the gradients of a backward are the mean over ranks, after `average`.

    Several ranks `join` before the first call, once it is known which parameters the embeddings depend on.
    sharded: of the model, where its towers are spread over the ranks; there is no DDP then.
    """

    def __init__(
        self,
        model: TwoTower,
        world: World,
        precision: Precision,
        ddp: DdpConfig | None = None,
        sharded: ShardedTowers | None = None,
    ) -> None:
        self._model, self._world, self._precision = model, world, precision
        self._ddp, self._sharded = ddp or DdpConfig(), sharded
        self._forward: nn.Module = model

    def join(self, unused: list[str]) -> None:
        """Wrap the model in DDP; all ranks call it. unused: the same names on all ranks.

        Raises RequestError where these would have DDP wait for ever, and the config forbids to look for them; of towers
        that are spread, for a batch norm that learns.
        """
        if self._sharded is not None:
            self._sharded.refuse_training_norms()
            return
        config = self._ddp
        if unused and config.find_unused_parameters is False and not config.static_graph:
            raise RequestError(
                f"ddp.find_unused_parameters=false, but the embeddings do not depend on {len(unused)} parameters that "
                f"learn, {unused[0]} the first: set it to auto, or freeze them (optim.freeze=[{unused[0]}])"
            )
        looks = bool(unused) if config.find_unused_parameters == "auto" else config.find_unused_parameters
        self._forward = DistributedDataParallel(
            self._model,
            bucket_cap_mb=config.bucket_cap_mb,
            static_graph=config.static_graph,
            find_unused_parameters=looks and not config.static_graph,
            gradient_as_bucket_view=True,
        )

    @property
    def static_graph(self) -> bool:
        return self._ddp.static_graph

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
        return made

    def rehearse(self, inputs: Inputs) -> list[str]:
        """Forward and backward of this rank alone; leaves nothing behind, even where it raises torch.OutOfMemoryError.

        Returns the names of parameters that learn but that no embedding depends on.

        Batch norms use their stored statistics: they would change these, and synchronised ones would wait for others.
        """
        state = random_state(self.device)
        norms = [module for module in self._model.modules() if isinstance(module, _BatchNorm) and module.training]
        for norm in norms:
            norm.eval()
        try:
            with nullcontext() if self._sharded is None else self._sharded.alone():
                with self.autocast():
                    made = self._model(*inputs)
                outputs = [x for x in made if x is not None and x.requires_grad]
                torch.autograd.backward(outputs, [torch.zeros_like(x) for x in outputs])
                return [name for name, p in self._model.named_parameters() if p.requires_grad and p.grad is None]
        finally:
            for norm in norms:
                norm.train()
            set_random_state(state, self.device)
            self._model.zero_grad(set_to_none=True)

    def autocast(self) -> AbstractContextManager[object]:
        return autocast(self._world.device, self._precision)

    def average(self) -> None:
        """After the last backward of a step: every gradient is the mean over ranks."""
        if self._sharded is not None:
            self._sharded.average()

    def no_sync(self) -> AbstractContextManager[object]:
        """Forwards and backwards in here leave gradients on their rank, for the next backward outside to average.

        Not of towers that are spread: whole gradients of several parts are what no rank has room for.
        """
        if isinstance(self._forward, DistributedDataParallel):
            return self._forward.no_sync()
        return nullcontext()


def compile_towers(model: TwoTower) -> None:
    """Have torch compile both towers at their first call, in place: no name changes. Dropout draws as without, so that
    both passes of a step in micro-batches drop the same."""
    for tower in (model.video, model.text):
        tower.compile(options={"fallback_random": True})


def synchronise_norms(model: TwoTower, world: World) -> TwoTower:
    """The same model, whose batch norms take their statistics from the global batch. Before an optimizer is made.

    Raises RequestError on a CPU, and for a model that has none.
    """
    if world.device.type != "cuda":
        raise RequestError(
            f"sync_batch_norm=true on device {world.device.type}: torch synchronises batch norms on GPUs alone; set it "
            "to false, freeze the norms (optim.freeze), or train on GPUs"
        )
    if not any(isinstance(module, _BatchNorm) for module in model.modules()):
        raise RequestError("sync_batch_norm=true, but the model has no batch norm; leave the key out")
    converted: TwoTower = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return converted
