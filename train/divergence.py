"""When numbers stop being finite, the cause is named: the weights before what they make of a sample."""

from __future__ import annotations

from torch import nn

from shared.errors import RunFailed


def refuse_bad_weights(model: nn.Module, done: int) -> None:
    """Raise RunFailed when a weight is NaN or infinite after `done` steps."""
    names = [name for name, weight in model.named_parameters() if not bool(weight.isfinite().all())]
    if names:
        raise RunFailed(
            f"the weights have diverged: after step {done}, {len(names)} tensors hold NaN or infinity, the first is "
            f"{names[0]}; lower optim.lr or set optim.clip, and go on from a checkpoint before or with another run=PATH"
        )


def explained(error: RunFailed, model: nn.Module, done: int) -> RunFailed:
    """The same failure of a validation after `done` steps, beside the largest weight, which tells whose fault it is."""
    size, name = max((float(weight.detach().abs().max()), name) for name, weight in model.named_parameters())
    return RunFailed(
        f"validation after step {done}: {error}. Every weight is finite, the largest is {size:.3g} in {name}: where "
        "that is far from 1, the weights are diverging; lower optim.lr or set optim.clip"
    )
