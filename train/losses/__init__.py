"""Losses: pure functions of embeddings, masks and ids over a global batch. A new one is a file and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import torch
from pydantic import Field

from train.distributed import ALONE, World
from train.losses.beyond import Beyond
from train.losses.dual_softmax import DualSoftmaxConfig, dual_softmax
from train.losses.info_nce import InfoNceConfig, info_nce
from train.losses.mil_nce import MilNceConfig, mil_nce
from train.losses.sampling import sample_candidate
from train.losses.sigmoid import SigmoidConfig, sigmoid

AnyLossConfig = MilNceConfig | InfoNceConfig | DualSoftmaxConfig | SigmoidConfig
LossConfig = Annotated[AnyLossConfig, Field(discriminator="name")]

LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "mil_nce": mil_nce,
    "info_nce": info_nce,
    "dual_softmax": dual_softmax,
    "sigmoid": sigmoid,
}


class Loss:
    """The configured loss with its options bound. seed: of the draws of `sample_candidate`."""

    def __init__(self, config: AnyLossConfig, seed: int = 0) -> None:
        self._function = LOSSES[config.name]
        self._options = config.model_dump(exclude={"name", "sample_candidate"})
        self._samples, self._seed = config.sample_candidate, seed

    def __call__(
        self,
        video_BD: torch.Tensor,
        text_NKD: torch.Tensor,
        mask_NK: torch.Tensor,
        video_ids_N: torch.Tensor,
        *,
        temperature: torch.Tensor | float,
        bias: torch.Tensor | None = None,
        beyond: Beyond | None = None,
        world: World = ALONE,
        step: int = 0,
    ) -> torch.Tensor:
        """This rank's scalar; the mean over ranks is the loss of the global batch.

        video_BD: (B, D) of this rank's clips. text_NKD, mask_NK bool, video_ids_N int64: of the N = W*B clips of all
        ranks, in rank order. bias: of the logits, for the loss that has one. beyond: remembered negatives, or None.
        step: number of the global batch.
        """
        if self._samples:
            mask_NK = sample_candidate(mask_NK, self._seed, step)
        extra: dict[str, Any] = self._options if bias is None else self._options | {"bias": bias}
        return self._function(
            video_BD, text_NKD, mask_NK, video_ids_N, temperature=temperature, beyond=beyond, world=world, **extra
        )


__all__ = [
    "LOSSES",
    "Beyond",
    "DualSoftmaxConfig",
    "InfoNceConfig",
    "Loss",
    "LossConfig",
    "MilNceConfig",
    "SigmoidConfig",
    "dual_softmax",
    "info_nce",
    "mil_nce",
    "sample_candidate",
    "sigmoid",
]
