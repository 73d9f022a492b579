"""MIL-NCE (Miech et al. 2020, "End-to-End Learning of Visual Representations from Uncurated Instructional
Videos", equation 1)."""

from __future__ import annotations

import math
from typing import Literal

import torch

from train.distributed import ALONE, World
from train.losses.beyond import Beyond
from train.losses.grid import TileSide
from train.losses.pairs import PairConfig, make_pairs
from train.losses.reductions import LogSums


class MilNceConfig(PairConfig):
    """name: the loss.

    positives: `once` in the denominator (the paper) or `twice` (the authors' release, to reproduce its logs)."""

    name: Literal["mil_nce"] = "mil_nce"
    positives: Literal["once", "twice"] = "once"


def mil_nce(
    video_BD: torch.Tensor,
    text_NKD: torch.Tensor,
    mask_NK: torch.Tensor,
    video_ids_N: torch.Tensor,
    *,
    temperature: torch.Tensor | float,
    positives: Literal["once", "twice"] = "once",
    mask_same_video: bool = True,
    tile: TileSide = "auto",
    clamp_gradient: float | None = None,
    beyond: Beyond | None = None,
    world: World = ALONE,
) -> torch.Tensor:
    """Scalar loss over a global batch, float32 (float64 for float64 input), differentiable in all floating inputs.

        L = - mean_i log [ S_i / (S_i + N_i) ]
        S_i = sum over the candidates k of clip i of exp(v_i . t_ik / temperature)
        N_i = sum over j != i, k of exp(v_i . t_jk / temperature) + exp(v_j . t_ik / temperature)

    Both directions share one denominator. With positives="once" the floor is 0; "twice" has 2 S_i in the denominator,
    floor log 2, and equals log 2 plus the formula with negatives at half weight.

    Ragged bags: an empty slot (mask False) is in no sum, neither as positive nor as negative. A clip without any
    candidate has no positive, so it is left out of the mean; its video remains a negative for the other clips' texts.
    A batch without any candidate at all has loss 0 and zero gradients.

    beyond: remembered negatives, which join both sums of N_i; a clip's own video is left out of them:

        N_i += sum over remembered texts q of exp(v_i . t_q / temperature)
             + sum over remembered videos q, k of exp(v_q . t_ik / temperature)

    With several ranks each brings its own B clips, all N = W*B bags, and gets its share (see train/losses/pairs.py).
    tile, clamp_gradient: as in PairConfig.
    """
    pairs = make_pairs(
        video_BD,
        text_NKD,
        mask_NK,
        video_ids_N,
        temperature=temperature,
        mask_same_video=mask_same_video,
        tile=tile,
        clamp_gradient=clamp_gradient,
        beyond=beyond,
        world=world,
    )
    rows_B, texts_M, own_BK = pairs.log_sums(LogSums(), with_own=False)
    positive_B = pairs.over_bag(own_BK)
    negative_B = torch.logaddexp(rows_B, pairs.over_bag(pairs.own_bags(texts_M)))
    counted_B = positive_B + math.log(2) if positives == "twice" else positive_B
    return pairs.mean(torch.logaddexp(counted_B, negative_B) - positive_B)
