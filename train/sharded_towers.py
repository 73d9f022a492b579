"""Gradients and optimizer state of both towers, or their parameters too, spread over the ranks by torch's FSDP2.

ZeRO stages 2 and 3: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
sections 5.2 and 5.3; FSDP2 is `torch.distributed.fsdp.fully_shard`. In both, a rank keeps its rows of every parameter,
and with them its share of the gradients and of the optimizer's state. Units (the layers of a transformer, and the rest
of a tower) are gathered for a forward; stage 2 keeps them until the backward is over, stage 3 frees them after the
forward and gathers them again for the backward. In bfloat16 the layers keep their casts of the weights for the backward
either way, two bytes a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm

from shared.errors import RequestError
from train.distributed import World, mean_over_ranks
from train.model import TwoTower
from train.sharding import Shard
from train.timing import COMMUNICATION


class ShardedTowers:
    """A model whose towers are spread, in place, over the ranks of the process group; all ranks make and use it alike.

    shard: 2 or 3. offload: keep each rank's share of the parameters, gradients and optimizer state in CPU memory, where
    the optimizer then computes its update; on device cpu they are there anyway. varies: towers use other parameters
    from batch to batch, so those that a batch does not use have zero gradients.

    FSDP2 cuts along the first dimension, which scalars do not have. They, and what stands outside the towers
    (temperature and bias), stay whole on every rank, and `average` does for them what FSDP2 does for the rest.
    """

    def __init__(
        self, model: TwoTower, world: World, shard: Shard, *, offload: bool = False, varies: bool = False
    ) -> None:
        self._model, self._world, self._shard = model, world, shard
        self._link = _Link()
        self._begun: dict[nn.Module, None] = {}
        mesh = init_device_mesh(world.device.type, (world.size,))
        policy = CPUOffloadPolicy() if offload and world.device.type == "cuda" else OffloadPolicy()
        scalars = {parameter for parameter in model.parameters() if parameter.ndim == 0}
        for tower in (model.video, model.text):
            for unit in (*_layers(tower), tower):
                unit.register_forward_hook(_not_a_view)
                fully_shard(
                    unit,
                    mesh=mesh,
                    reshard_after_forward=shard == 3,
                    offload_policy=policy,
                    ignored_params=scalars,
                )
                assert isinstance(unit, FSDPModule)
                self._link.connect(unit)
                unit.set_reduce_scatter_unused_params(varies, recurse=False)
            # Before the hook of FSDP2, so that a forward which fails in there counts as begun.
            tower.register_forward_pre_hook(self._begin, prepend=True)
        self._whole = [parameter for parameter in model.parameters() if not isinstance(parameter, DTensor)]

    def average(self) -> None:
        """After the last backward of a step: the mean over ranks of the gradients that are not spread."""
        gradients = [parameter.grad for parameter in self._whole if parameter.grad is not None]
        if gradients:
            mean = mean_over_ranks(torch.cat([gradient.flatten() for gradient in gradients]), self._world)
            for gradient, part in zip(gradients, torch.split(mean, [one.numel() for one in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))
        for tower in self._begun:
            # FSDP2 notes each forward until a backward has come, which no frozen tower has.
            if not any(parameter.requires_grad for parameter in tower.parameters()):
                _forget(tower)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Forwards and backwards in here take the memory that others take, and send nothing: what would be gathered
        from other ranks is zero. They may fail anywhere; no gradient and no gathered parameter is left behind."""
        self._link.silent = True
        try:
            yield
        finally:
            self._link.silent = False
            # Gradients of units that are gathered still would else be held, unseen, until their next backward.
            self._model.zero_grad(set_to_none=True)
            for tower in self._begun:
                _forget(tower)

    def refuse_training_norms(self) -> None:
        """Raise RequestError for a batch norm that learns: without DDP every rank would keep other statistics."""
        norms = [name for name, one in self._model.named_modules() if isinstance(one, _BatchNorm) and one.training]
        if norms:
            raise RequestError(
                f"shard={self._shard}, but batch norm {norms[0]} (of {len(norms)}) takes its statistics from the "
                f"batch, and each rank would keep its own: freeze it (optim.freeze=[{norms[0]}.*]) and it uses the "
                "stored ones, put another norm in its place, or set shard=1"
            )

    def _begin(self, tower: nn.Module, inputs: Any) -> None:
        del inputs
        self._begun[tower] = None


def runs_together(model: nn.Module) -> bool:
    """Whether a forward needs all ranks, as each holds a share of the parameters."""
    return any(isinstance(module, FSDPModule) for module in model.modules())


def _forget(tower: nn.Module) -> None:
    assert isinstance(tower, FSDPModule)
    tower.reset_iter_state()


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    """What stands in the outermost lists of modules, as the layers of a transformer do."""
    for child in module.children():
        if isinstance(module, nn.ModuleList) and not isinstance(child, nn.ModuleList):
            yield child
        else:
            yield from _layers(child)


def _not_a_view(unit: nn.Module, inputs: Any, output: Any) -> Any:
    """FSDP2 puts a hook on what a unit says, and warns where that is a view: a change in place would drop the hook."""
    del unit, inputs
    return output.clone() if isinstance(output, torch.Tensor) and output._base is not None else output


class _Link:
    """The collectives of FSDP2, counted as communication; `silent` ones send nothing and give zeros."""

    def __init__(self) -> None:
        self.silent = False

    def connect(self, unit: FSDPModule) -> None:
        # They take any object with `allocate` and `__call__`; the classes that say so are private.
        gather: Any = _Gather(self)
        reduce: Any = _Reduce(self)
        unit.set_custom_all_gather(gather)
        unit.set_custom_reduce_scatter(reduce)


class _Collective:
    def __init__(self, link: _Link) -> None:
        self._link = link

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _Gather(_Collective):
    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        if self._link.silent:
            output_tensor.zero_()
            return None
        with COMMUNICATION.running():
            return dist.all_gather_single(output_tensor, input_tensor, group=group, async_op=async_op)


class _Reduce(_Collective):
    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp.RedOpType,
        async_op: bool = False,
    ) -> dist.Work | None:
        if self._link.silent:
            output_tensor.zero_()
            return None
        with COMMUNICATION.running():
            return dist.reduce_scatter_single(output_tensor, input_tensor, op=op, group=group, async_op=async_op)
