"""How often a clip finds its own text in the batch, from the embeddings that the loss sees."""

from __future__ import annotations

import torch

from train.distributed import ALONE, World
from train.losses.grid import blocks, lowest
from train.losses.masking import at_least_float32
from train.losses.pairs import captioned_clips

# Similarities that are in memory at a time.
_BLOCK = 1 << 20


@torch.no_grad()
def share_of_clips_won(
    video_BD: torch.Tensor,
    text_NKD: torch.Tensor,
    mask_NK: torch.Tensor,
    video_ids_N: torch.Tensor,
    world: World = ALONE,
) -> torch.Tensor:
    """Scalar: share of the clips with a caption for which one of their own texts beats every text of other videos.

    Arguments as of a loss; the mean over ranks is the share in the global batch. A tie is not a win, so a collapsed
    model has 0, and neither is a batch without texts of other videos. Zero where no clip has a caption.
    """
    first = world.rank * len(video_BD)
    with torch.autocast(video_BD.device.type, enabled=False):
        video_BD, text_MD = at_least_float32(video_BD), at_least_float32(text_NKD).flatten(0, 1)
        won = video_BD.new_zeros(())
        for rows in blocks(len(video_BD), max(1, _BLOCK // mask_NK.numel())):
            number_T = torch.arange(first + rows.start, first + rows.stop, device=mask_NK.device)
            # Own and other texts from one product: two would round differently, and a tie would look like a win.
            similarity_TNK = (video_BD[rows] @ text_MD.T).view(-1, *mask_NK.shape)
            best_TN = similarity_TNK.masked_fill(~mask_NK, lowest(video_BD)).amax(dim=2)
            own_T = best_TN.gather(1, number_T[:, None]).squeeze(1)
            same_TN = video_ids_N[number_T][:, None] == video_ids_N
            others_T = best_TN.masked_fill(same_TN, lowest(video_BD)).amax(dim=1)
            won += ((own_T > others_T) & (others_T > lowest(video_BD)) & mask_NK[number_T].any(dim=1)).sum()
    return won * world.size / captioned_clips(mask_NK)
