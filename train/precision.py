"""In what precision the towers compute. Weights, similarities and the loss stay in float32."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

Precision = Literal["float32", "bfloat16"]
_HALF: dict[Precision, torch.dtype] = {"bfloat16": torch.bfloat16}


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """What a forward of the towers runs in; for float32 nothing, so that a caller's own autocast holds."""
    if precision not in _HALF:
        return nullcontext()
    return torch.autocast(device.type, dtype=_HALF[precision])
