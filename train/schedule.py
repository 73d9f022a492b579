"""The learning rate as a pure function of the step, so that resuming needs no scheduler state."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator

from shared.config import Config


class ScheduleConfig(Config):
    """name: `cosine` falls to `final` x the peak, `constant` stays. warmup: share of all steps with a linear rise.

    final: where `cosine` ends, as a share of the peak; the step after the last would have it.
    """

    name: Literal["cosine", "constant"] = "cosine"
    warmup: float = Field(default=0.1, ge=0.0, lt=1.0)
    final: float = Field(default=0.0, ge=0.0, le=1.0)

    @model_validator(mode="after")
    def _consistent(self) -> ScheduleConfig:
        if self.name != "cosine":
            self.refuse_idle(["final"], f"only cosine falls to it, and schedule.name={self.name} is chosen")
        return self


def learning_rate_factor(step: int, total_steps: int, config: ScheduleConfig) -> float:
    """What the peak learning rate is multiplied with at `step` (0-based) of `total_steps`.

    Warm-up of w = round(warmup x total_steps) steps: (step + 1) / w, so no step has rate 0. Then half a cosine from 1
    towards `final`, which the step after the last would have, so no step is wasted at rate 0 (Loshchilov and Hutter
    2017, one cycle, no restart).
    """
    if not 0 <= step < total_steps:
        raise ValueError(f"step {step} is outside a run of {total_steps} steps")
    warmup_steps = round(config.warmup * total_steps)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if config.name == "constant":
        return 1.0
    progress = (step - warmup_steps) / (total_steps - warmup_steps)
    return config.final + (1 - config.final) * 0.5 * (1 + math.cos(math.pi * progress))
