"""Tensors that ranks hold a share of each: the whole of them, for checkpoints and norms, and a share of a whole.

A share is that of `torch.chunk` along the first dimension: rows ceil(n / W) x rank and following; the last ranks' may
be empty. The collectives are those of `train.distributed`, which work for shares in CPU memory on GPUs, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor

from train.distributed import World, gather_plain


@torch.no_grad()
def whole(x: torch.Tensor, world: World) -> torch.Tensor:
    """All of a tensor that is spread, on every rank, on the world's device; any other as it is. All ranks call it."""
    if not isinstance(x, DTensor):
        return x
    own = x.to_local()
    rows = _rows(len(x), world)
    padded = own.new_zeros(rows, *x.shape[1:])
    padded[: len(own)] = own
    return gather_plain(padded.to(world.device), world)[: len(x)]


def share(x: torch.Tensor, world: World) -> torch.Tensor:
    """This rank's rows of a whole tensor."""
    rows = _rows(len(x), world)
    return x[world.rank * rows : (world.rank + 1) * rows]


def named_whole(model: nn.Module, world: World) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter by name, whole, one at a time; all ranks go through it to the end."""
    for name, parameter in model.named_parameters():
        yield name, whole(parameter.detach(), world)


def whole_model(model: nn.Module, world: World) -> dict[str, Any]:
    """On rank 0 the state of the model as one process has it; all ranks call it, what others get is of no use."""
    state: dict[str, Any] = model.state_dict()
    for name, value in state.items():
        state[name] = _on_main(value, world)
    return state


@torch.no_grad()
def load_whole_model(model: nn.Module, content: Mapping[str, Any], world: World) -> None:
    """Set a model, spread or not, to the state of `whole_model`."""
    spread = {name: value for name, value in model.state_dict().items() if isinstance(value, DTensor)}
    if not spread:
        model.load_state_dict(content)
        return
    # Those that are spread are given to themselves here, so that torch still compares the names.
    model.load_state_dict({name: spread.get(name, value) for name, value in content.items()})
    for name, value in spread.items():
        value.to_local().copy_(share(content[name], world))


def full_state(optimizer: torch.optim.Optimizer, world: World) -> dict[str, Any]:
    """On rank 0 the state of all parameters, as one process has it; all ranks call it, others may get {}.

    Any optimizer of the same kind loads it by `load_full_state`, spread or not, at any world size.
    """
    if isinstance(optimizer, ZeroRedundancyOptimizer):
        optimizer.consolidate_state_dict(to=0)
        if dist.get_rank() != 0:
            return {}
    content = optimizer.state_dict()
    state = {
        number: {key: _on_main(value, world) for key, value in of_one.items()}
        for number, of_one in content["state"].items()
    }
    return content | {"state": state}


def load_full_state(optimizer: torch.optim.Optimizer, content: dict[str, Any], world: World) -> None:
    """Set an optimizer to what `full_state` gave."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = {
        number: {key: _like(value, parameters[number], world) for key, value in of_one.items()}
        for number, of_one in content["state"].items()
    }
    optimizer.load_state_dict(content | {"state": state})


def held(parameter: torch.Tensor) -> torch.Tensor:
    """The part of a parameter that this rank holds, with that part of its gradient; both share their memory."""
    if not isinstance(parameter, DTensor):
        return parameter
    with torch.no_grad():
        part = parameter.to_local().detach()
        if isinstance(parameter.grad, DTensor):
            part.grad = parameter.grad.to_local()
    return part


def gradient_norm(parameters: Iterable[torch.Tensor], world: World) -> torch.Tensor:
    """L2 norm over all gradients of a model, of which some may be spread; the same bits on all ranks, which all call it
    with the same parameters."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    plain = nn.utils.get_total_norm([one for one in gradients if not isinstance(one, DTensor)])
    with torch.no_grad():
        mine = [one.to_local() for one in gradients if isinstance(one, DTensor)]
    if not mine:
        return plain
    of_ranks_W = gather_plain(nn.utils.get_total_norm(mine).to(world.device)[None], world)
    # Norms of norms: squares of large ones might be infinite where the norm is not.
    norm: torch.Tensor = torch.linalg.vector_norm(torch.cat([of_ranks_W, plain.to(of_ranks_W)[None]]))
    return norm


def _rows(rows: int, world: World) -> int:
    return -(-rows // world.size)


def _on_main(value: Any, world: World) -> Any:
    if not isinstance(value, DTensor):
        return value
    gathered = whole(value, world)
    # In CPU memory, as a GPU that holds a share may have no room for it all.
    return gathered.cpu() if world.is_main else value


def _like(value: Any, parameter: torch.Tensor, world: World) -> Any:
    """An optimizer's value for a parameter, spread as that is; a count of steps stays as it is."""
    if not isinstance(parameter, DTensor) or not isinstance(value, torch.Tensor) or value.shape != parameter.shape:
        return value
    spread = torch.zeros_like(parameter)
    assert isinstance(spread, DTensor)
    with torch.no_grad():
        spread.to_local().copy_(share(value, world))
    return spread
