"""Rows of a clip look at each other in the order of time: nearby ones in the first layers, all of them in the last."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.nn import functional as F

from shared.config import Config
from shared.errors import RequestError
from train.model.sizes import Width


class TransformerConfig(Config):
    """layers: of attention, each with an MLP of four times the width. heads: of a layer; they divide model.dim.

    local_layers: how many of the first layers are local, 0 for none. window: how many rows before and after a row a
    local layer looks at. positions: of a row among its clip's: fixed waves, a learned vector each, or none. max_rows:
    of a clip, for learned ones.
    """

    layers: int = Field(default=2, ge=1, le=64)
    heads: int = Field(default=4, ge=1)
    local_layers: int = Field(default=1, ge=0)
    window: int = Field(default=4, ge=1)
    positions: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
    max_rows: Width = Field(default=512, ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> TransformerConfig:
        if self.local_layers == 0:
            self.refuse_idle(["window"], "only local layers have one, and local_layers=0")
        if self.positions != "learned":
            self.refuse_idle(["max_rows"], f"only learned positions are as many, and positions={self.positions}")
        return self


class RowTransformer(nn.Module):
    """Pre-norm transformer encoder (Vaswani et al. 2017; norms first as in Xiong et al. 2020).

    forward(x_BTD, mask_BT): floating, bool -> (B, T, dim). A row's position is its place among the valid rows of its
    clip, so padding may stand anywhere. Padding is looked at by nobody; what stands at its places has no meaning.
    Raises RequestError where the heads do not divide `dim`, where more layers are local than there are, and for a clip
    with more rows than learned positions.
    """

    def __init__(self, dim: int, config: TransformerConfig, dropout: float) -> None:
        super().__init__()
        if dim % config.heads:
            raise RequestError(
                f"model.dim={dim} cannot be cut into model.video.transformer.heads={config.heads} equal parts; choose "
                "a number of heads that divides it"
            )
        if config.local_layers > config.layers:
            raise RequestError(
                f"model.video.transformer.local_layers={config.local_layers} of layers={config.layers}; expected at "
                "most as many"
            )
        self._config, self._dim = config, dim
        self.positions = nn.Embedding(config.max_rows, dim) if config.positions == "learned" else None
        self.layers = nn.ModuleList(_Layer(dim, config.heads, dropout) for _ in range(config.layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x_BTD: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
        place_BT = (mask_BT.cumsum(dim=1) - 1).clamp(min=0)
        x_BTD = x_BTD + self._positions(place_BT, x_BTD.dtype)
        # A padded row looks at itself, as a softmax over nothing is not a number.
        itself_TT = torch.eye(mask_BT.shape[1], dtype=torch.bool, device=mask_BT.device)
        global_BTT = mask_BT[:, None, :] | itself_TT
        near_BTT = (place_BT[:, :, None] - place_BT[:, None, :]).abs() <= self._config.window
        local_BTT = (near_BTT & mask_BT[:, None, :]) | itself_TT
        for number, layer in enumerate(self.layers):
            x_BTD = layer(x_BTD, local_BTT if number < self._config.local_layers else global_BTT)
        normed: torch.Tensor = self.norm(x_BTD)
        return normed

    def _positions(self, place_BT: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if self._config.positions == "none":
            return torch.zeros((), dtype=dtype, device=place_BT.device)
        if self.positions is None:
            return waves(place_BT, self._dim).to(dtype)
        if place_BT.shape[1] > self._config.max_rows:
            raise RequestError(
                f"a batch has {place_BT.shape[1]} rows a clip, but model.video.transformer.max_rows="
                f"{self._config.max_rows}; raise it, lower data.max_rows, or choose positions=sinusoidal"
            )
        learned: torch.Tensor = self.positions(place_BT)
        return learned


def waves(place_BT: torch.Tensor, dim: int) -> torch.Tensor:
    """int64 (B, T) -> float32 (B, T, dim): sines, then cosines, of wavelengths from 2 pi to 10000 x 2 pi rows (Vaswani
    et al. 2017, section 3.5; there the two alternate)."""
    half = (dim + 1) // 2
    rate_H = torch.exp(torch.arange(half, device=place_BT.device) * (-math.log(10_000) / half))
    angle_BTH = place_BT[..., None] * rate_H
    return torch.cat([angle_BTH.sin(), angle_BTH.cos()], dim=-1)[..., :dim]


class _Layer(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self._heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.asked = nn.Linear(dim, 3 * dim)
        self.said = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTD: torch.Tensor, sees_BTT: torch.Tensor) -> torch.Tensor:
        x_BTD = x_BTD + self.dropout(self._attention(self.before_attention(x_BTD), sees_BTT))
        added: torch.Tensor = x_BTD + self.dropout(self.mlp(self.before_mlp(x_BTD)))
        return added

    def _attention(self, x_BTD: torch.Tensor, sees_BTT: torch.Tensor) -> torch.Tensor:
        batch, rows, dim = x_BTD.shape
        parts = self.asked(x_BTD).view(batch, rows, 3, self._heads, dim // self._heads).permute(2, 0, 3, 1, 4)
        query_BHTD, key_BHTD, value_BHTD = parts.unbind(0)
        seen_BHTD = F.scaled_dot_product_attention(query_BHTD, key_BHTD, value_BHTD, attn_mask=sees_BTT[:, None])
        said: torch.Tensor = self.said(seen_BHTD.transpose(1, 2).reshape(batch, rows, dim))
        return said
