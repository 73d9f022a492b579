"""The dual softmax loss (Cheng et al. 2021, "Improving Video-Text Retrieval by Multi-Stream Corpus Alignment and Dual
Softmax Loss", section 3.4), extended to bags of candidates."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from train.distributed import ALONE, World, logsumexp_over_ranks
from train.losses.beyond import Beyond
from train.losses.grid import TileSide
from train.losses.pairs import PairConfig, make_pairs
from train.losses.reductions import LogSums, WeightedLogSums


class DualSoftmaxConfig(PairConfig):
    """name: the loss.

    prior: temperature of the weights, in logits: large ones make the weights even, as 1000 does in the release.
    clamp_gradient: must be null, because a logit's gradient has two sources here, the similarity and its weights.
    """

    name: Literal["dual_softmax"] = "dual_softmax"
    prior: float = Field(default=1.0, gt=0)
    clamp_gradient: None = None


def dual_softmax(
    video_BD: torch.Tensor,
    text_NKD: torch.Tensor,
    mask_NK: torch.Tensor,
    video_ids_N: torch.Tensor,
    *,
    temperature: torch.Tensor | float,
    prior: float = 1.0,
    mask_same_video: bool = True,
    tile: TileSide = "auto",
    clamp_gradient: None = None,
    beyond: Beyond | None = None,
    world: World = ALONE,
) -> torch.Tensor:
    """Scalar loss over a global batch, float32 (float64 for float64 input), differentiable in all floating inputs.

    InfoNCE in both directions over similarities that are weighted by the softmax over the other axis:

        s_ijk = v_i . t_jk / temperature
        a_ijk = s_ijk exp(s_ijk / prior) / sum over i' of exp(s_i'jk / prior)           a text chooses among the clips
        b_ijk = s_ijk exp(s_ijk / prior) / sum over j', k' of exp(s_ij'k' / prior)      a clip chooses among the texts
        L = - 1/2 mean_i ( log [ sum over k of exp(a_iik) / sum over j, k of exp(a_ijk) ]
                         + log [ sum over k of exp(b_iik) / sum over j, k of exp(b_jik) ] )

    The gradient goes through the weights, too. The authors' release multiplies the weighted similarities by the number
    of clips, which the paper does not and neither does this.

    Ragged bags: an empty slot is in no sum, the weights' included; a clip without any candidate is left out of the
    mean, its video remains a negative for, and takes part in the choice of, the other clips' texts. Clips of one video
    are left out of each other's sums in the same way. A batch without any candidate has loss 0 and zero gradients.

    beyond: remembered texts are further j, k of both sums over texts, remembered videos further i' and j of both sums
    over clips, without pairs of one video or of two remembered ones: a remembered text chooses among the clips of the
    batch, a remembered video among its texts.

    Ranks, tile: as in mil_nce.
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
    soft, weighted = pairs.softened(prior), WeightedLogSums(prior)
    clips, texts = soft.sums_beyond(LogSums())
    clip_B, text_M, _ = soft.log_sums(LogSums(), with_own=True, beyond=(clips, texts))
    vectors = (
        (clip_B, logsumexp_over_ranks(clips[1], world)) if clips else (),
        (pairs.own_bags(text_M).flatten(), logsumexp_over_ranks(texts[1], world)) if texts else (),
    )
    rows_B, texts_M, own_BK = pairs.log_sums(
        weighted, with_own=True, vectors=(clip_B, text_M), beyond=pairs.sums_beyond(weighted, vectors)
    )
    by_text_BK = own_BK * _weights(own_BK / prior - pairs.own_bags(text_M), pairs.own_mask)
    by_clip_BK = own_BK * _weights(own_BK / prior - clip_B.unsqueeze(1), pairs.own_mask)
    video_to_texts_B = rows_B - pairs.over_bag(by_text_BK)
    texts_to_video_B = pairs.over_bag(pairs.own_bags(texts_M)) - pairs.over_bag(by_clip_BK)
    return pairs.mean((video_to_texts_B + texts_to_video_B) / 2)


def _weights(log_weight_BK: torch.Tensor, mask_BK: torch.Tensor) -> torch.Tensor:
    """exp where there is a candidate, else 0: the sum over nothing is so low that its exp would be infinite."""
    return torch.where(mask_BK, log_weight_BK, torch.full_like(log_weight_BK, -torch.inf)).exp()
