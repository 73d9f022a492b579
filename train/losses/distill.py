"""Learning the similarities that a teacher sees within a batch (Hinton et al. 2015, "Distilling the Knowledge in a
Neural Network"; for two towers Yang et al. 2024, "CLIP-KD", contrastive relational distillation), for bags."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch.utils.checkpoint import checkpoint

from shared.config import Config
from train.distributed import ALONE, World
from train.losses.dual_softmax import DualSoftmaxConfig
from train.losses.grid import TileSide, blocks
from train.losses.info_nce import InfoNceConfig
from train.losses.mil_nce import MilNceConfig
from train.losses.pairs import Pairs, TileSize, make_pairs
from train.losses.reductions import LogSums
from train.losses.sigmoid import SigmoidConfig

BaseLossConfig = Annotated[
    MilNceConfig | InfoNceConfig | DualSoftmaxConfig | SigmoidConfig, Field(discriminator="name")
]


class DistillConfig(Config):
    """name: the loss.

    teacher: a checkpoint or run folder of `train fit`, trained on the same stream and tokens; its towers embed every
    batch and learn nothing. teacher_temperature: what its similarities are divided by, null for its own temperature;
    the model's are divided by the model's.
    base: a further loss, to which `weight` times this one is added; null for this one alone. weight: of this one.
    tile: clips in a block of rows of the similarity matrix; 0 keeps the whole matrix; auto keeps it while small.
    """

    name: Literal["distill"] = "distill"
    teacher: Path
    teacher_temperature: float | None = Field(default=None, gt=0)
    base: BaseLossConfig | None = None
    weight: float = Field(default=1.0, gt=0)
    tile: TileSize = "auto"


class Teacher(NamedTuple):
    """What a teacher says of a batch: constants. video_BD: of this rank's clips, text_NKD: of the global batch, as wide
    as each other. temperature: scalar, its own."""

    video_BD: torch.Tensor
    text_NKD: torch.Tensor
    temperature: torch.Tensor


def distill(
    video_BD: torch.Tensor,
    text_NKD: torch.Tensor,
    mask_NK: torch.Tensor,
    video_ids_N: torch.Tensor,
    *,
    temperature: torch.Tensor | float,
    teacher: Teacher,
    teacher_temperature: float | None = None,
    tile: TileSide = "auto",
    world: World = ALONE,
) -> torch.Tensor:
    """Scalar loss over a global batch, float32 (float64 for float64 input), differentiable in video, text, temperature.

        s_ijk = v_i . t_jk / temperature,   t_ijk the same of the teacher with its temperature
        q_i = softmax of s over j, k,   q_jk = softmax of s over i,   p_i and p_jk the same of t
        L = 1/2 ( mean over clips i of KL(p_i || q_i) + mean over texts jk of KL(p_jk || q_jk) )

    Ragged bags: an empty slot is in no distribution and no mean. A clip without any candidate has a distribution over
    the others' texts like any other clip. Nothing is left out for its video's id: how alike clips of one video are, the
    teacher says. A batch without any candidate has loss 0 and zero gradients.

    Ranks: as in mil_nce. tile: rows that are compared at a time, with all texts, and again for the gradient.
    """
    pairs_of = partial(make_pairs, mask_same_video=False, tile=tile, clamp_gradient=None, world=world)
    student = pairs_of(video_BD, text_NKD, mask_NK, video_ids_N, temperature=temperature)
    shown_temperature = teacher.temperature if teacher_temperature is None else teacher_temperature
    with torch.no_grad():
        shown = pairs_of(teacher.video_BD, teacher.text_NKD, mask_NK, video_ids_N, temperature=shown_temperature)
        shown_rows_B, shown_texts_M, _ = shown.log_sums(LogSums(), with_own=True)
    rows_B, texts_M, _ = student.log_sums(LogSums(), with_own=True)
    # In the logits' precision: a number over a tensor of integers would be float32.
    texts = mask_NK.sum().clamp(min=1).to(rows_B.dtype)
    # Half of the two means, as this rank's share.
    by_row, by_text = 0.5 / len(video_BD), 0.5 * world.size / texts
    own_rows = (rows_B - shown_rows_B).where(mask_NK.any(), 0.0).sum()
    own_texts = student.own_bags(texts_M - shown_texts_M).where(student.own_mask, 0.0).sum()
    total = by_row * own_rows + by_text * own_texts
    for rows in blocks(len(video_BD), student.side):
        given = (student, shown, rows, shown_rows_B[rows], shown_texts_M, by_row, by_text)
        if student.side == 0:
            total = total + _expected(*given)
        else:
            total = total + checkpoint(_expected, *given, use_reentrant=False, preserve_rng_state=False)
    return total


def _expected(
    student: Pairs,
    shown: Pairs,
    rows: slice,
    shown_row_T: torch.Tensor,
    shown_text_M: torch.Tensor,
    by_row: float,
    by_text: torch.Tensor,
) -> torch.Tensor:
    """Scalar: sum over a block of rows of (by_row p_i + by_text p_jk) (t - s), what the teacher expects of both."""
    with torch.no_grad():
        shown_TM = shown.logits(rows)
        weight_TM = by_row * (shown_TM - shown_row_T[:, None]).exp() + by_text * (shown_TM - shown_text_M).exp()
    return (weight_TM * (shown_TM - student.logits(rows))).sum()
