"""When numbers stop being finite, the cause is named: the weights before what they make of a sample."""

from __future__ import annotations

from torch import nn

from shared.errors import RunFailed
from train.distributed import ALONE, World
from train.sharded_state import named_whole


def refuse_bad_weights(model: nn.Module, done: int, world: World = ALONE) -> None:
    """Raise RunFailed when a weight is NaN or infinite after `done` steps; all ranks call it."""
    names = [name for name, weight in named_whole(model, world) if not bool(weight.isfinite().all())]
    if names:
        raise RunFailed(
            f"the weights have diverged: after step {done}, {len(names)} tensors hold NaN or infinity, the first is "
            f"{names[0]}; lower optim.lr or set optim.clip, and go on from a checkpoint before or with another run=PATH"
        )


def explained(error: RunFailed, model: nn.Module, done: int, world: World = ALONE) -> RunFailed:
    """The same failure of a validation after `done` steps, beside the largest weight, which tells whose fault it is;
    all ranks call it."""
    size, name = max((float(weight.abs().max()), name) for name, weight in named_whole(model, world))
    return RunFailed(
        f"validation after step {done}: {error}. Every weight is finite, the largest is {size:.3g} in {name}: where "
        "that is far from 1, the weights are diverging; lower optim.lr or set optim.clip"
    )
