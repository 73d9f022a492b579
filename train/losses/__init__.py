"""Losses: pure functions of embeddings, masks and ids over a global batch. A new one is a file and a line here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Protocol

import torch
from pydantic import Field

from train.losses.info_nce import InfoNceConfig, info_nce
from train.losses.mil_nce import MilNceConfig, mil_nce

LossConfig = Annotated[MilNceConfig | InfoNceConfig, Field(discriminator="name")]


class Loss(Protocol):
    """(W*B, D) videos, (W*B, K, D) texts, (W*B, K) bool mask, (W*B,) int64 ids -> scalar; options already bound."""

    def __call__(
        self,
        video_BD: torch.Tensor,
        text_BKD: torch.Tensor,
        mask_BK: torch.Tensor,
        video_ids_B: torch.Tensor,
        *,
        temperature: torch.Tensor | float,
    ) -> torch.Tensor: ...


LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "mil_nce": mil_nce,
    "info_nce": info_nce,
}


def build_loss(config: MilNceConfig | InfoNceConfig) -> Loss:
    """The configured loss with its options bound."""
    loss: Loss = partial(LOSSES[config.name], **config.model_dump(exclude={"name"}))
    return loss


__all__ = ["LOSSES", "InfoNceConfig", "Loss", "LossConfig", "MilNceConfig", "build_loss", "info_nce", "mil_nce"]
