"""From the stored rows of a clip to its embedding. A new head is a class and a line in VIDEO_HEADS, as in
docs/own-model.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError
from torch import nn

from shared.config import Config
from shared.config_schema import UNKNOWN_NAME
from train.model.pooling import AttentionPool, MaskedMax, MaskedMean, masked_mean, zero_padding
from train.model.projection import projection
from train.model.row_transformer import RowTransformer, TransformerConfig
from train.model.sizes import Width


def _known_head(name: str) -> str:
    if name not in VIDEO_HEADS:
        known = {"name": repr(name), "known": ", ".join(VIDEO_HEADS)}
        raise PydanticCustomError(UNKNOWN_NAME, "{name} is not known here; known: {known}", known)
    return name


def _list_heads(schema: dict[str, Any]) -> None:
    schema["enum"] = list(VIDEO_HEADS)


HeadName = Annotated[str, AfterValidator(_known_head), Field(json_schema_extra=_list_heads)]


class VideoHeadConfig(Config):
    """name: how rows become one vector. hidden: width of an MLP before pooling, 0 for a single linear projection.

    layer_norm: normalise each stored row first, of several streams each apart. dropout: share of projected channels
    dropped in training, and of what each layer of a transformer adds. transformer: of the head of that name, the mean
    over rows that looked at each other.
    """

    name: HeadName = "mean"
    hidden: Width = Field(default=0, ge=0)
    layer_norm: bool = False
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    transformer: TransformerConfig = TransformerConfig()

    @model_validator(mode="after")
    def _consistent(self) -> VideoHeadConfig:
        if self.name != "transformer":
            self.refuse_idle(["transformer"], f"only the head of that name has one, and model.video.name={self.name}")
        return self


class PooledHead(nn.Module):
    """Projection of every row, then pooling over the valid ones.

    input_dims: channels of each stream, which stand behind each other in a row. Without a hidden layer, the projection
    is the sum of one of each stream.
    forward(video_BTD, mask_BT): floating (B, T, sum of input_dims), bool (B, T) -> (B, dim). A clip without a row gives
    zero.
    """

    def __init__(self, input_dims: Sequence[int], dim: int, config: VideoHeadConfig, pool: nn.Module) -> None:
        super().__init__()
        self.norm = _norm(input_dims) if config.layer_norm else nn.Identity()
        self.projection = projection(sum(input_dims), dim, config.hidden)
        self.dropout = nn.Dropout(config.dropout)
        self.pool = pool

    def forward(self, video_BTD: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
        weight = next(self.projection.parameters())
        rows_BTD = zero_padding(video_BTD.to(weight.dtype), mask_BT)
        pooled: torch.Tensor = self.pool(self.dropout(self.projection(self.norm(rows_BTD))), mask_BT)
        return pooled


class NormEach(nn.Module):
    """A layer norm for each stream, over its own channels: (..., sum of dims) -> the same shape."""

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        self._dims = list(dims)
        self.streams = nn.ModuleList(nn.LayerNorm(dim) for dim in dims)

    def forward(self, rows_BTD: torch.Tensor) -> torch.Tensor:
        parts = zip(self.streams, rows_BTD.split_with_sizes(self._dims, dim=-1), strict=True)
        return torch.cat([norm(part) for norm, part in parts], dim=-1)


def _norm(dims: Sequence[int]) -> nn.Module:
    return nn.LayerNorm(dims[0]) if len(dims) == 1 else NormEach(dims)


def mean_head(input_dims: Sequence[int], dim: int, config: VideoHeadConfig) -> nn.Module:
    return PooledHead(input_dims, dim, config, MaskedMean())


def max_head(input_dims: Sequence[int], dim: int, config: VideoHeadConfig) -> nn.Module:
    return PooledHead(input_dims, dim, config, MaskedMax())


def attention_head(input_dims: Sequence[int], dim: int, config: VideoHeadConfig) -> nn.Module:
    return PooledHead(input_dims, dim, config, AttentionPool(dim))


class TransformedMean(nn.Module):
    """A transformer over projected rows, then the mean of the valid ones."""

    def __init__(self, dim: int, config: VideoHeadConfig) -> None:
        super().__init__()
        self.transformer = RowTransformer(dim, config.transformer, config.dropout)

    def forward(self, x_BTD: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
        return masked_mean(self.transformer(x_BTD, mask_BT), mask_BT)


def transformer_head(input_dims: Sequence[int], dim: int, config: VideoHeadConfig) -> nn.Module:
    return PooledHead(input_dims, dim, config, TransformedMean(dim, config))


# A head is made of the channels of each stream, the size of the embedding and its config.
VIDEO_HEADS: dict[str, Callable[[Sequence[int], int, VideoHeadConfig], nn.Module]] = {
    "mean": mean_head,
    "max": max_head,
    "attention": attention_head,
    "transformer": transformer_head,
}
