"""How alike different clips' embeddings are: near 1, a model tells nothing apart (it has collapsed)."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from train.distributed import ALONE, World


@torch.no_grad()
def directions(
    video_BD: torch.Tensor, text_NKD: torch.Tensor, mask_NK: torch.Tensor, world: World = ALONE
) -> torch.Tensor:
    """float32 or float64 (2, D + 1): over this rank's clips, the sum of unit vectors and, last, how many they are.

    Row 0 of videos, row 1 of each clip's first caption where it has one. Arguments as of a loss. The sum of all ranks'
    results is what `mean_cosines` takes.
    """
    own = slice(world.rank * len(video_BD), (world.rank + 1) * len(video_BD))
    present_B = mask_NK[own, 0]
    sums = []
    for x_BD, kept_B in ((video_BD, torch.ones_like(present_B)), (text_NKD[own, 0], present_B)):
        with torch.autocast(x_BD.device.type, enabled=False):
            wide_BD = x_BD.float() if x_BD.dtype in (torch.float16, torch.bfloat16) else x_BD
            unit_BD = F.normalize(wide_BD, dim=1) * kept_B[:, None]
        sums.append(torch.cat([unit_BD.sum(dim=0), kept_B.sum().to(unit_BD.dtype)[None]]))
    return torch.stack(sums)


def mean_cosines(total_2D: torch.Tensor) -> tuple[float, float]:
    """Mean cosine between the videos, and between the first captions, of two different clips; 0 with fewer than two.

    total_2D: of all clips, as `directions` gives it. With S the sum of n unit vectors, the n (n - 1) ordered pairs of
    different ones have cosines that add up to |S|^2 - n.
    """
    sums_2D, count_2 = total_2D[:, :-1].double(), total_2D[:, -1].double()
    pairs_2 = (count_2 * (count_2 - 1)).clamp(min=1)
    videos, texts = ((sums_2D.square().sum(dim=1) - count_2) / pairs_2).where(count_2 > 1, 0.0).tolist()
    return videos, texts
