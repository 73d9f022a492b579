"""Losses: pure functions of embeddings, masks and ids over a global batch. A new one is a file and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import torch
from pydantic import Field

from train.distributed import ALONE, World
from train.losses.beyond import Beyond
from train.losses.distill import DistillConfig, Teacher, distill
from train.losses.dual_softmax import DualSoftmaxConfig, dual_softmax
from train.losses.info_nce import InfoNceConfig, info_nce
from train.losses.mil_nce import MilNceConfig, mil_nce
from train.losses.sampling import sample_candidate
from train.losses.sigmoid import SigmoidConfig, sigmoid

AnyLossConfig = MilNceConfig | InfoNceConfig | DualSoftmaxConfig | SigmoidConfig | DistillConfig
LossConfig = Annotated[AnyLossConfig, Field(discriminator="name")]

LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "mil_nce": mil_nce,
    "info_nce": info_nce,
    "dual_softmax": dual_softmax,
    "sigmoid": sigmoid,
    "distill": distill,
}


class Loss:
    """The configured loss with its options bound; with a teacher, distillation beside another loss or alone.

    seed: of the draws of `sample_candidate`.
    """

    def __init__(self, config: AnyLossConfig, seed: int = 0) -> None:
        self._distill = config if isinstance(config, DistillConfig) else None
        self._plain = config.base if isinstance(config, DistillConfig) else config
        self._seed = seed

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
        teacher: Teacher | None = None,
        world: World = ALONE,
        step: int = 0,
    ) -> torch.Tensor:
        """This rank's scalar; the mean over ranks is the loss of the global batch.

        video_BD: (B, D) of this rank's clips. text_NKD, mask_NK bool, video_ids_N int64: of the N = W*B clips of all
        ranks, in rank order. bias: of the logits, for the loss that has one. beyond: remembered negatives, or None.
        teacher: its embeddings of the same clips, where the config names one. step: number of the global batch.
        """
        common: dict[str, Any] = {"temperature": temperature, "world": world}
        terms = []
        if self._plain is not None:
            sampled_NK = sample_candidate(mask_NK, self._seed, step) if self._plain.sample_candidate else mask_NK
            options = self._plain.model_dump(exclude={"name", "sample_candidate"}) | common
            if bias is not None:
                options["bias"] = bias
            plain = LOSSES[self._plain.name]
            terms.append(plain(video_BD, text_NKD, sampled_NK, video_ids_N, beyond=beyond, **options))
        if self._distill is not None:
            assert teacher is not None, "a config that names a teacher comes with its embeddings"
            options = self._distill.model_dump(include={"teacher_temperature", "tile"}) | common
            share = distill(video_BD, text_NKD, mask_NK, video_ids_N, teacher=teacher, **options)
            terms.append(self._distill.weight * share)
        return torch.stack(terms).sum()


__all__ = [
    "LOSSES",
    "Beyond",
    "DistillConfig",
    "DualSoftmaxConfig",
    "InfoNceConfig",
    "Loss",
    "LossConfig",
    "MilNceConfig",
    "SigmoidConfig",
    "Teacher",
    "distill",
    "dual_softmax",
    "info_nce",
    "mil_nce",
    "sample_candidate",
    "sigmoid",
]
