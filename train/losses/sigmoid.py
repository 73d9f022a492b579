"""The loss of SigLIP (Zhai et al. 2023, "Sigmoid Loss for Language Image Pre-Training", section 3), for bags."""

from __future__ import annotations

from typing import Literal

import torch
from torch.nn import functional as F

from train.distributed import ALONE, World
from train.losses.beyond import Beyond
from train.losses.grid import TileSide
from train.losses.pairs import PairConfig, make_pairs
from train.losses.reductions import SoftplusSums


class SigmoidConfig(PairConfig):
    """name: the loss.

    Its learned bias is the model's: `model.logit_bias` is where it starts.
    """

    name: Literal["sigmoid"] = "sigmoid"


def sigmoid(
    video_BD: torch.Tensor,
    text_NKD: torch.Tensor,
    mask_NK: torch.Tensor,
    video_ids_N: torch.Tensor,
    *,
    temperature: torch.Tensor | float,
    bias: torch.Tensor | float,
    mask_same_video: bool = True,
    tile: TileSide = "auto",
    clamp_gradient: float | None = None,
    beyond: Beyond | None = None,
    world: World = ALONE,
) -> torch.Tensor:
    """Scalar loss over a global batch, float32 (float64 for float64 input), differentiable in all floating inputs.

        L = - 1/n sum over i, j, k of log sigmoid( z_ij (v_i . t_jk / temperature + bias) ),   z_ij = 1 if i = j else -1

    n is the number of clips with a candidate, so one candidate a clip gives the paper's loss. Every pair is judged by
    itself: each candidate of a clip is a positive of its own, also where the others fit better.

    Ragged bags: an empty slot is in no sum; the video of a clip without any candidate remains a negative for the other
    clips' texts; a batch without any candidate has loss 0 and zero gradients.

    beyond: each pair of a clip and a remembered text, and of a remembered video and a candidate, is one more negative:
    the sum also has log sigmoid(-(v_i . t_q / temperature + bias)) and log sigmoid(-(v_q . t_ik / temperature + bias)),
    without pairs of one video.

    Ranks, tile, clamp_gradient: as in mil_nce.
    """
    pairs = make_pairs(
        video_BD,
        text_NKD,
        mask_NK,
        video_ids_N,
        temperature=temperature,
        bias=bias,
        mask_same_video=mask_same_video,
        tile=tile,
        clamp_gradient=clamp_gradient,
        beyond=beyond,
        world=world,
    )
    negative_B, own_BK = pairs.sums(SoftplusSums(), with_own=False)
    positive_BK = torch.where(pairs.own_mask, -F.logsigmoid(own_BK), torch.zeros_like(own_BK))
    clips, texts = pairs.sums_beyond(SoftplusSums())
    for sums in (*clips, *texts):
        negative_B = negative_B + sums.view(len(negative_B), -1).sum(dim=1)
    return pairs.total(positive_BK.sum(dim=1) + negative_B)
