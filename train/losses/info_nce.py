"""InfoNCE in both directions, as in CLIP (Radford et al., 2021, figure 3), extended to bags of candidates."""

from __future__ import annotations

from typing import Literal

import torch

from shared.config import Config
from train.losses.masking import masked_logsumexp, mean_over, negative_pairs, scaled_similarities


class InfoNceConfig(Config):
    """name: the loss. mask_same_video: other clips of the anchor's video are not its negatives."""

    name: Literal["info_nce"] = "info_nce"
    mask_same_video: bool = True


def info_nce(
    video_BD: torch.Tensor,
    text_BKD: torch.Tensor,
    mask_BK: torch.Tensor,
    video_ids_B: torch.Tensor,
    *,
    temperature: torch.Tensor | float,
    mask_same_video: bool = True,
) -> torch.Tensor:
    """Scalar loss over a global batch, float32 (float64 for float64 input), differentiable in all floating inputs.

        L = - 1/2 mean_i ( log [ S_i / (S_i + sum over j != i, k of exp(v_i . t_jk / temperature)) ]
                         + log [ S_i / (S_i + sum over j != i, k of exp(v_j . t_ik / temperature)) ] )

    With one candidate a clip this is the usual -1/2 (log softmax over rows + over columns). With more, S_i sums over
    the clip's candidates as in MIL-NCE, but each direction keeps a denominator of its own.

    Ragged bags: an empty slot is in no sum; a clip without any candidate is left out of the mean, its video remains a
    negative for the other clips' texts; a batch without any candidate has loss 0 and zero gradients.
    """
    similarity_BBK = scaled_similarities(video_BD, text_BKD, mask_BK, temperature)
    own_BB = torch.eye(len(video_ids_B), dtype=torch.bool, device=video_ids_B.device)
    counted_BB = negative_pairs(video_ids_B, mask_same_video) | own_BB
    counted_BBK = counted_BB.unsqueeze(-1) & mask_BK.unsqueeze(0)

    positive_B = masked_logsumexp(similarity_BBK.diagonal(dim1=0, dim2=1).T, mask_BK, dim=1)
    video_to_texts_B = masked_logsumexp(similarity_BBK, counted_BBK, dim=(1, 2))
    texts_to_video_B = masked_logsumexp(similarity_BBK, counted_BBK, dim=(0, 2))
    return mean_over((video_to_texts_B + texts_to_video_B) / 2 - positive_B, mask_BK.any(dim=1))
