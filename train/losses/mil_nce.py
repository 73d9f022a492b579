"""MIL-NCE (Miech et al. 2020, "End-to-End Learning of Visual Representations from Uncurated Instructional
Videos", equation 1)."""

from __future__ import annotations

from typing import Literal

import torch

from shared.config import Config
from train.losses.masking import masked_logsumexp, mean_over, negative_pairs, scaled_similarities


class MilNceConfig(Config):
    """name: the loss.

    positives: `once` in the denominator (the paper) or `twice` (the authors' release, to reproduce its logs).

    mask_same_video: other clips of the anchor's video are not its negatives.
    """

    name: Literal["mil_nce"] = "mil_nce"
    positives: Literal["once", "twice"] = "once"
    mask_same_video: bool = True


def mil_nce(
    video_BD: torch.Tensor,
    text_BKD: torch.Tensor,
    mask_BK: torch.Tensor,
    video_ids_B: torch.Tensor,
    *,
    temperature: torch.Tensor | float,
    positives: Literal["once", "twice"] = "once",
    mask_same_video: bool = True,
) -> torch.Tensor:
    """Scalar loss over a global batch, float32 (float64 for float64 input), differentiable in all floating inputs.

        L = - mean_i log [ S_i / (S_i + N_i) ]
        S_i = sum over the candidates k of clip i of exp(v_i . t_ik / temperature)
        N_i = sum over j != i, k of exp(v_i . t_jk / temperature) + exp(v_j . t_ik / temperature)

    Both directions share one denominator. With positives="once" the floor is 0; "twice" has 2 S_i in the denominator,
    floor log 2, and equals log 2 plus the formula with negatives at half weight.

    Ragged bags: an empty slot (mask_BK False) is in no sum, neither as positive nor as negative. A clip without any
    candidate has no positive, so it is left out of the mean; its video remains a negative for the other clips' texts.
    A batch without any candidate at all has loss 0 and zero gradients.
    """
    similarity_BBK = scaled_similarities(video_BD, text_BKD, mask_BK, temperature)
    negative_BB = negative_pairs(video_ids_B, mask_same_video)
    own_BB = torch.eye(len(video_ids_B), dtype=torch.bool, device=video_ids_B.device)
    video_side_BBK = (negative_BB | own_BB).unsqueeze(-1) & mask_BK.unsqueeze(0)
    text_side_BB = negative_BB | own_BB if positives == "twice" else negative_BB
    text_side_BBK = text_side_BB.unsqueeze(-1) & mask_BK.unsqueeze(0)

    own_BK = similarity_BBK.diagonal(dim1=0, dim2=1).T
    positive_B = masked_logsumexp(own_BK, mask_BK, dim=1)
    video_to_texts_B = masked_logsumexp(similarity_BBK, video_side_BBK, dim=(1, 2))
    texts_to_video_B = masked_logsumexp(similarity_BBK, text_side_BBK, dim=(0, 2))
    denominator_B = torch.logaddexp(video_to_texts_B, texts_to_video_B)
    return mean_over(denominator_B - positive_B, mask_BK.any(dim=1))
