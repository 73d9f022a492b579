"""Which parameters learn, in which groups, by which rule, and how far one step may go."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator
from torch import nn

from shared.config import Config
from shared.errors import RequestError
from train.distributed import ALONE, World
from train.sharded_state import gradient_norm, held
from train.sharding import sharded_optimizer

# Goyal et al. 2017 show linear scaling for SGD with warm-up; beyond this it is to be tried, not trusted.
LINEAR_UP_TO = 1024
Beta = Annotated[float, Field(ge=0, lt=1)]


class GroupConfig(Config):
    """Parameters whose name matches `pattern` (as in a shell: `text.encoder.*`) learn at `scale` times the rate.

    pattern: of names. scale: factor of the rate.
    """

    pattern: str
    scale: float = Field(gt=0)


class OptimConfig(Config):
    """name: the optimiser. lr: the peak rate. clip: largest gradient norm over all parameters, null for no limit.

    scale: how the rate follows the global batch; `linear` takes batch / base_batch times `lr` (Goyal et al. 2017,
    section 2.1), `sqrt` the square root of that times `lr`. base_batch: the global batch that `lr` is meant for.
    weight_decay: of adamw and sgd; spares biases, norms and the temperature. betas: of adamw. momentum: of sgd.
    freeze: patterns of the names of parameters that do not learn.
    groups: patterns with rates of their own; a parameter follows the first that matches it.
    """

    name: Literal["adamw", "sgd"] = "adamw"
    lr: float = Field(default=1e-3, gt=0)
    scale: Literal["none", "linear", "sqrt"] = "none"
    base_batch: int | None = Field(default=None, ge=1)
    weight_decay: float = Field(default=0.01, ge=0)
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    clip: float | None = Field(default=1.0, gt=0)
    freeze: tuple[str, ...] = ()
    groups: tuple[GroupConfig, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> OptimConfig:
        if (self.scale == "none") != (self.base_batch is None):
            raise ValueError(
                f"scale={self.scale} with base_batch={self.base_batch}: a rate that follows the batch needs the batch "
                "that lr is meant for, another one has none; give both or neither"
            )
        if self.name != "sgd":
            self.refuse_idle(["momentum"], f"only sgd has it, and optim.name={self.name} is chosen (it has betas)")
        if self.name != "adamw":
            self.refuse_idle(["betas"], f"only adamw has them, and optim.name={self.name} is chosen (it has momentum)")
        return self

    def peak(self, batch_size: int) -> float:
        """The peak rate at a global batch of `batch_size`."""
        if self.base_batch is None:
            return self.lr
        ratio = batch_size / self.base_batch
        return self.lr * (ratio if self.scale == "linear" else math.sqrt(ratio))

    def described(self, batch_size: int) -> str:
        """For people: the peak rate, how it came about, and what is known to go wrong with it."""
        if self.base_batch is None:
            return f"{self.lr:g}"
        text = f"{self.peak(batch_size):g} (lr {self.lr:g} for {self.base_batch}, {self.scale} in the batch)"
        if self.scale == "linear" and batch_size > LINEAR_UP_TO:
            text += (
                f"; warning: a global batch of {batch_size} is above {LINEAR_UP_TO}, where linear scaling often "
                "diverges: compare with optim.scale=sqrt, or warm up for longer (schedule.warmup)"
            )
        return text


def build_optimizer(
    model: nn.Module, config: OptimConfig, batch_size: int = 1, *, sharded: bool = False
) -> torch.optim.Optimizer:
    """Freeze what the config names, and an optimizer over what is left. Every group carries its peak rate as `peak_lr`.

    batch_size: the global batch, for a rate that follows it. sharded: spread its state over the ranks.
    Call it after towers are spread, whose parameters are others, and before the model is wrapped in DDP: names are
    matched without a prefix, and DDP must know what is frozen.
    Raises RequestError when a pattern matches nothing or nothing is left to train.
    """
    freeze_parameters(model, config.freeze)
    rate = config.peak(batch_size)
    groups = parameter_groups(model, config, rate)
    kind, options = _KINDS[config.name](config)
    make = partial(sharded_optimizer, kind) if sharded else kind
    optimizer: torch.optim.Optimizer = make(groups, lr=rate, **options)
    return optimizer


def _adamw(config: OptimConfig) -> tuple[Any, dict[str, Any]]:
    return torch.optim.AdamW, {"betas": config.betas}


def _sgd(config: OptimConfig) -> tuple[Any, dict[str, Any]]:
    return torch.optim.SGD, {"momentum": config.momentum}


_KINDS: dict[str, Callable[[OptimConfig], tuple[Any, dict[str, Any]]]] = {"adamw": _adamw, "sgd": _sgd}


def state_bytes(config: OptimConfig, parameter: torch.Tensor) -> int:
    """What the optimizer remembers of a parameter that learns, once it has taken a step."""
    return _STATES[config.name](config, parameter.numel() * parameter.element_size())


def _adamw_state(_config: OptimConfig, of_parameter: int) -> int:
    # Two moments (Loshchilov and Hutter 2019, algorithm 2), and the number of steps in one float32.
    return 2 * of_parameter + 4


def _sgd_state(config: OptimConfig, of_parameter: int) -> int:
    return of_parameter if config.momentum else 0


_STATES: dict[str, Callable[[OptimConfig, int], int]] = {"adamw": _adamw_state, "sgd": _sgd_state}


def freeze_parameters(model: nn.Module, patterns: Sequence[str]) -> None:
    """Parameters whose name matches any pattern stop learning. Raises RequestError for a pattern without a match."""
    for pattern in patterns:
        for name in _matches(model, pattern):
            model.get_parameter(name).requires_grad_(False)


def parameter_groups(model: nn.Module, config: OptimConfig, rate: float) -> list[dict[str, Any]]:
    """Trainable parameters by (rate, decay or not), in a fixed order; only what learns is optimised. rate: the peak."""
    _check_groups(model, config.groups)
    members: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            # Biases, the weights of norms and the temperature have fewer than two dimensions.
            decay = config.weight_decay if parameter.ndim >= 2 else 0.0
            members.setdefault((rate * _scale(name, config.groups), decay), []).append(parameter)
    if not members:
        raise RequestError("every parameter of the model is frozen, nothing would learn; freeze fewer names")
    return [
        {"params": parameters, "lr": own_rate, "peak_lr": own_rate, "weight_decay": decay}
        for (own_rate, decay), parameters in members.items()
    ]


def set_learning_rate(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Every group learns at `factor` times its peak rate."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * factor


def clip_gradients(parameters: Iterable[nn.Parameter], limit: float | None, world: World = ALONE) -> torch.Tensor:
    """Scale all gradients down to a total L2 norm of at most `limit`; returns the norm before, a scalar tensor.

    Several ranks call it after the gradients were averaged, so all scale alike; those that are spread over them count
    as a whole.
    """
    owners = [parameter for parameter in parameters if parameter.grad is not None]
    norm = gradient_norm(owners, world)
    if limit is not None:
        nn.utils.clip_grads_with_norm_([held(owner) for owner in owners], limit, norm)
    return norm


def _check_groups(model: nn.Module, groups: Sequence[GroupConfig]) -> None:
    """Raise RequestError for a group that no parameter follows: none has such a name, or earlier groups have them."""
    takers: dict[str, int] = {}
    for number, group in enumerate(groups):
        found = _matches(model, group.pattern)
        earlier = [takers.setdefault(name, number) for name in found]
        if number not in earlier:
            first = " and ".join(repr(groups[one].pattern) for one in sorted(set(earlier)))
            raise RequestError(
                f"optim.groups: the pattern {group.pattern!r} is left with no parameter: all {len(found)} that it "
                f"matches follow {first} before it; a parameter follows the first group that matches, so put the "
                "narrower pattern first, or leave this one out"
            )


def _matches(model: nn.Module, pattern: str) -> list[str]:
    names = [name for name, _ in model.named_parameters()]
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        tops = ", ".join(sorted({".".join(name.split(".")[:2]) for name in names}))
        raise RequestError(f"pattern {pattern!r} matches no parameter; names begin with {tops}")
    return found


def _scale(name: str, groups: Sequence[GroupConfig]) -> float:
    return next((group.scale for group in groups if fnmatchcase(name, group.pattern)), 1.0)
