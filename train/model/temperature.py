"""The temperature of the logits: fixed, or learned in log space within bounds."""

from __future__ import annotations

import math

import torch
from pydantic import Field, model_validator
from torch import nn

from shared.config import Config


class TemperatureConfig(Config):
    """value: the temperature, or its start when it is learned. learned: whether it is.

    minimum, maximum: bounds of a learned one.
    """

    value: float = Field(default=0.07, gt=0)
    learned: bool = False
    minimum: float = Field(default=0.01, gt=0)
    maximum: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _start_within_bounds(self) -> TemperatureConfig:
        if self.learned and not self.minimum <= self.value <= self.maximum:
            raise ValueError(
                f"a learned temperature starts at value={self.value}, expected within [{self.minimum}, {self.maximum}]"
            )
        return self


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
        self.learned = config.learned
        self.bounds = (math.log(config.minimum), math.log(config.maximum))

    def forward(self) -> torch.Tensor:
        return self.log_value.exp()

    @torch.no_grad()
    def clamp_(self) -> None:
        """Back within the bounds, after an update. (A clamp in forward would stop the gradient there for ever.)"""
        if self.learned:
            self.log_value.clamp_(*self.bounds)
