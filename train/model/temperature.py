"""The temperature of the logits: fixed, scheduled over the training, or learned in log space within bounds."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import nn

from shared.config import Config


class TemperatureConfig(Config):
    """value: the temperature, or its start when it is learned or scheduled. learned: whether it is.

    minimum, maximum: bounds of a learned one.
    schedule: `linear` or `cosine` goes from `value` to `final` over the run; value=1, final=0.1 is the linear rule
    0.1 + 0.9 (1 - progress).
    final: where a schedule ends, once the last step is done; null for a constant one. A step takes the temperature at
    the share of steps done before it: the last of N steps stands at (N - 1) / N of the way.
    """

    value: float = Field(default=0.07, gt=0)
    learned: bool = False
    minimum: float = Field(default=0.01, gt=0)
    maximum: float = Field(default=1.0, gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    final: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _consistent(self) -> TemperatureConfig:
        if self.learned and not self.minimum <= self.value <= self.maximum:
            raise ValueError(
                f"a learned temperature starts at value={self.value}, expected within [{self.minimum}, {self.maximum}]"
            )
        if self.learned and self.schedule != "constant":
            raise ValueError(f"learned=true with schedule={self.schedule}: choose one of them")
        if not self.learned:
            self.refuse_idle(["minimum", "maximum"], "only a learned temperature has bounds, and learned=false")
        if (self.schedule == "constant") != (self.final is None):
            raise ValueError(
                f"schedule={self.schedule} with final={self.final}: a linear or cosine schedule needs a final "
                "temperature, a constant one has none"
            )
        return self


def scheduled_temperature(config: TemperatureConfig, progress: float) -> float:
    """The temperature at `progress`, the share of the run's steps that are done before this one, in [0, 1]."""
    if config.final is None:
        return config.value
    rest = 1 - progress if config.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
    return config.final + (config.value - config.final) * rest


class Temperature(nn.Module):
    """forward() -> scalar tensor, what similarities are divided by."""

    log_value: torch.Tensor

    def __init__(self, config: TemperatureConfig) -> None:
        super().__init__()
        start = torch.tensor(math.log(config.value))
        if config.learned:
            self.log_value = nn.Parameter(start)
        else:
            self.register_buffer("log_value", start)
        self.config = config

    def forward(self) -> torch.Tensor:
        return self.log_value.exp()

    @torch.no_grad()
    def clamp_(self) -> None:
        """Back within the bounds, after an update. (A clamp in forward would stop the gradient there for ever.)"""
        if self.config.learned:
            self.log_value.clamp_(math.log(self.config.minimum), math.log(self.config.maximum))

    @torch.no_grad()
    def schedule_(self, progress: float) -> None:
        """What the schedule says, before a step: of the step's number alone, so a resumed run goes on exactly."""
        if self.config.schedule != "constant":
            self.log_value.fill_(math.log(scheduled_temperature(self.config, progress)))
