"""InfoNCE in both directions, as in CLIP (Radford et al., 2021, figure 3), extended to bags of candidates."""

from __future__ import annotations

from typing import Literal

import torch

from train.distributed import ALONE, World
from train.losses.beyond import Beyond
from train.losses.grid import TileSide
from train.losses.pairs import PairConfig, make_pairs
from train.losses.reductions import LogSums


class InfoNceConfig(PairConfig):
    """name: the loss."""

    name: Literal["info_nce"] = "info_nce"


def info_nce(
    video_BD: torch.Tensor,
    text_NKD: torch.Tensor,
    mask_NK: torch.Tensor,
    video_ids_N: torch.Tensor,
    *,
    temperature: torch.Tensor | float,
    mask_same_video: bool = True,
    tile: TileSide = "auto",
    clamp_gradient: float | None = None,
    beyond: Beyond | None = None,
    world: World = ALONE,
) -> torch.Tensor:
    """Scalar loss over a global batch, float32 (float64 for float64 input), differentiable in all floating inputs.

        L = - 1/2 mean_i ( log [ S_i / (S_i + sum over j != i, k of exp(v_i . t_jk / temperature)) ]
                         + log [ S_i / (S_i + sum over j != i, k of exp(v_j . t_ik / temperature)) ] )

    With one candidate a clip this is the usual -1/2 (log softmax over rows + over columns). With more, S_i sums over
    the clip's candidates as in MIL-NCE, but each direction keeps a denominator of its own.

    Ragged bags: an empty slot is in no sum; a clip without any candidate is left out of the mean, its video remains a
    negative for the other clips' texts; a batch without any candidate has loss 0 and zero gradients.

    beyond: the first denominator also sums exp(v_i . t_q / temperature) over remembered texts q, the second one
    exp(v_q . t_ik / temperature) over remembered videos q and k, without those of the clip's own video.

    Ranks, tile, clamp_gradient: as in mil_nce.
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
    video_to_texts_B = torch.logaddexp(positive_B, rows_B)
    texts_to_video_B = torch.logaddexp(positive_B, pairs.over_bag(pairs.own_bags(texts_M)))
    return pairs.mean((video_to_texts_B + texts_to_video_B) / 2 - positive_B)
