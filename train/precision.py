"""In what precision the towers compute. Weights, similarities and the loss stay in float32.

float16 has gradients that fall below its smallest number, so the loss is multiplied by a scale before the backward and
the gradients divided by it after (Micikevicius et al. 2018, "Mixed Precision Training", section 3.2). The scale finds
itself: a gradient that overflows skips its step and halves it, 2,000 good steps double it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from shared.errors import RequestError

Precision = Literal["float32", "bfloat16", "float16"]
_HALF: dict[Precision, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# A gradient that overflows without any help of the scale is of a model that diverged.
SMALLEST_SCALE = 1.0


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """What a forward of the towers runs in; for float32 nothing, so that a caller's own autocast holds."""
    if precision not in _HALF:
        return nullcontext()
    return torch.autocast(device.type, dtype=_HALF[precision])


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raises RequestError for float16 without a GPU."""
    if precision == "float16" and device.type != "cuda":
        raise RequestError(
            f"precision=float16 on device {device.type}: CPUs compute it slowly or not at all; set precision=bfloat16, "
            "which needs no scaling, or precision=float32, or train on a GPU"
        )


def make_scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler:
    """For float16; for the rest one that does nothing and has no state."""
    return torch.amp.GradScaler(device.type, enabled=precision == "float16")
