"""Precision, and sums of exponentials with entries left out."""

from __future__ import annotations

import torch

from train.losses.grid import lowest


def at_least_float32(x: torch.Tensor) -> torch.Tensor:
    """Half precisions become float32, float32 and float64 stay: logits of a half lose the small differences."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def masked_logsumexp(x: torch.Tensor, keep: torch.Tensor, dim: int | tuple[int, ...]) -> torch.Tensor:
    """log of the sum of exp(x) where `keep`; a very low finite number where nothing is kept."""
    return torch.logsumexp(x.masked_fill(~keep, lowest(x)), dim=dim)
