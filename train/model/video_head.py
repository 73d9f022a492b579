"""From the stored rows of a clip to its embedding. A new head is a class and a line in VIDEO_HEADS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from shared.config import Config
from train.model.pooling import AttentionPool, MaskedMax, MaskedMean, masked_mean, zero_padding
from train.model.row_transformer import RowTransformer, TransformerConfig
from train.model.sizes import Width


class VideoHeadConfig(Config):
    """name: how rows become one vector. hidden: width of an MLP before pooling, 0 for a single linear projection.

    layer_norm: normalise each stored row first. dropout: share of projected channels dropped in training, and of what
    each layer of a transformer adds. transformer: of the head of that name, the mean over rows that looked at each
    other.
    """

    name: Literal["mean", "max", "attention", "transformer"] = "mean"
    hidden: Width = Field(default=0, ge=0)
    layer_norm: bool = False
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    transformer: TransformerConfig = TransformerConfig()


class PooledHead(nn.Module):
    """Projection of every row, then pooling over the valid ones.

    forward(video_BTD, mask_BT): floating (B, T, input_dim), bool (B, T) -> (B, dim). A clip without a row gives zero.
    """

    def __init__(self, input_dim: int, dim: int, config: VideoHeadConfig, pool: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(input_dim) if config.layer_norm else nn.Identity()
        self.projection = _projection(input_dim, dim, config.hidden)
        self.dropout = nn.Dropout(config.dropout)
        self.pool = pool

    def forward(self, video_BTD: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
        weight = next(self.projection.parameters())
        rows_BTD = zero_padding(video_BTD.to(weight.dtype), mask_BT)
        pooled: torch.Tensor = self.pool(self.dropout(self.projection(self.norm(rows_BTD))), mask_BT)
        return pooled


def _projection(input_dim: int, dim: int, hidden: int) -> nn.Module:
    if hidden == 0:
        return nn.Linear(input_dim, dim)
    return nn.Sequential(nn.Linear(input_dim, hidden), nn.GELU(), nn.Linear(hidden, dim))


def mean_head(input_dim: int, dim: int, config: VideoHeadConfig) -> nn.Module:
    return PooledHead(input_dim, dim, config, MaskedMean())


def max_head(input_dim: int, dim: int, config: VideoHeadConfig) -> nn.Module:
    return PooledHead(input_dim, dim, config, MaskedMax())


def attention_head(input_dim: int, dim: int, config: VideoHeadConfig) -> nn.Module:
    return PooledHead(input_dim, dim, config, AttentionPool(dim))


class TransformedMean(nn.Module):
    """A transformer over projected rows, then the mean of the valid ones."""

    def __init__(self, dim: int, config: VideoHeadConfig) -> None:
        super().__init__()
        self.transformer = RowTransformer(dim, config.transformer, config.dropout)

    def forward(self, x_BTD: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
        return masked_mean(self.transformer(x_BTD, mask_BT), mask_BT)


def transformer_head(input_dim: int, dim: int, config: VideoHeadConfig) -> nn.Module:
    return PooledHead(input_dim, dim, config, TransformedMean(dim, config))


VIDEO_HEADS: dict[str, Callable[[int, int, VideoHeadConfig], nn.Module]] = {
    "mean": mean_head,
    "max": max_head,
    "attention": attention_head,
    "transformer": transformer_head,
}
