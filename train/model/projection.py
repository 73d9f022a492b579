"""From stored vectors into the joint space."""

from __future__ import annotations

from torch import nn


def projection(input_dim: int, dim: int, hidden: int) -> nn.Module:
    """(..., input_dim) -> (..., dim): linear, or with a hidden layer of that width where it is not 0."""
    if hidden == 0:
        return nn.Linear(input_dim, dim)
    return nn.Sequential(nn.Linear(input_dim, hidden), nn.GELU(), nn.Linear(hidden, dim))
