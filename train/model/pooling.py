"""From the valid rows of a sequence to one vector. Padding reaches neither value nor gradient, and never gives NaN."""

from __future__ import annotations

import torch
from torch import nn


def zero_padding(x_NTD: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """Padded rows replaced by zeros, whatever they held; their gradient is zero, too."""
    return torch.where(mask_NT.unsqueeze(-1), x_NTD, torch.zeros_like(x_NTD))


def masked_mean(x_NTD: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """(N, T, D), bool (N, T) -> (N, D), the mean of the valid rows; zero where there are none."""
    counts_N1 = mask_NT.sum(dim=1, keepdim=True).clamp(min=1)
    return zero_padding(x_NTD, mask_NT).sum(dim=1) / counts_N1


def masked_max(x_NTD: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """(N, T, D), bool (N, T) -> (N, D), each channel's largest value over valid rows; zero where there are none."""
    lowest = torch.finfo(x_NTD.dtype).min
    highest_ND = x_NTD.masked_fill(~mask_NT.unsqueeze(-1), lowest).amax(dim=1)
    return zero_padding(highest_ND, mask_NT.any(dim=1))


class MaskedMean(nn.Module):
    """`masked_mean` as a module."""

    def forward(self, x_NTD: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
        return masked_mean(x_NTD, mask_NT)


class MaskedMax(nn.Module):
    """`masked_max` as a module."""

    def forward(self, x_NTD: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
        return masked_max(x_NTD, mask_NT)


class AttentionPool(nn.Module):
    """One learned score a row, softmax over the valid rows, weighted mean; zero where there are none.

    Scores start at zero, so that training begins at the masked mean.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, 1, bias=False)
        nn.init.zeros_(self.score.weight)

    def forward(self, x_NTD: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
        clean_NTD = zero_padding(x_NTD, mask_NT)
        score_NT = self.score(clean_NTD).squeeze(-1).masked_fill(~mask_NT, torch.finfo(clean_NTD.dtype).min)
        weight_NT = torch.where(mask_NT, score_NT.softmax(dim=1), torch.zeros_like(score_NT))
        return torch.einsum("nt,ntd->nd", weight_NT, clean_NTD)
