"""What all contrastive losses here share: precision, similarities, and sums of exponentials with entries left out."""

from __future__ import annotations

import torch


def at_least_float32(x: torch.Tensor) -> torch.Tensor:
    """Half precisions become float32, float32 and float64 stay: logits of a half lose the small differences."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def scaled_similarities(
    video_BD: torch.Tensor, text_BKD: torch.Tensor, mask_BK: torch.Tensor, temperature: torch.Tensor | float
) -> torch.Tensor:
    """s[i, j, k] = video_i . text_jk / temperature, (B, B, K), in float32 or better whatever the autocast.

    Empty slots are zeroed first: whatever stands there, NaN included, reaches neither the value nor a gradient.
    """
    with torch.autocast(video_BD.device.type, enabled=False):
        video_BD, text_BKD = at_least_float32(video_BD), at_least_float32(text_BKD)
        text_BKD = torch.where(mask_BK.unsqueeze(-1), text_BKD, torch.zeros_like(text_BKD))
        rows, candidates, _ = text_BKD.shape
        product = video_BD @ text_BKD.reshape(rows * candidates, -1).T
        return product.view(-1, rows, candidates) / temperature


def negative_pairs(video_ids_B: torch.Tensor, mask_same_video: bool) -> torch.Tensor:
    """(B, B) bool: True where clip j may serve as a negative of clip i. Never itself, nor (if asked) its own video."""
    if mask_same_video:
        return video_ids_B[:, None] != video_ids_B[None, :]
    return ~torch.eye(len(video_ids_B), dtype=torch.bool, device=video_ids_B.device)


def masked_logsumexp(x: torch.Tensor, keep: torch.Tensor, dim: int | tuple[int, ...]) -> torch.Tensor:
    """log of the sum of exp(x) where `keep`; a very low finite number where nothing is kept.

    Finite instead of -inf, because the gradient of a log-sum-exp over nothing but -inf is NaN.
    """
    return torch.logsumexp(x.masked_fill(~keep, torch.finfo(x.dtype).min / 4), dim=dim)


def mean_over(x_B: torch.Tensor, keep_B: torch.Tensor) -> torch.Tensor:
    """Mean of the kept entries; zero, with zero gradient, where nothing is kept."""
    kept = torch.where(keep_B, x_B, torch.zeros_like(x_B))
    return kept.sum() / keep_B.sum().clamp(min=1)
