"""What the data side hands to a step: one typed batch."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch


@dataclass(frozen=True)
class Batch:
    """One rank's clips of one step.

    video_BTD: rows of each clip, floating, padded with anything where video_mask_BT is False.
    video_mask_BT: bool, True where a row exists; at least one a clip.
    tokens_BKL: int32 token ids of the candidate captions, any valid id where token_mask_BKL is False.
    token_mask_BKL: bool, True where a token stands. The id that fills the rest may be a word's id, too.
    caption_mask_BK: bool, True where a candidate exists. Bags are ragged: a clip may have fewer than K, or none.
    video_ids_B: int64, equal exactly for clips of one video, over all ranks.
    """

    video_BTD: torch.Tensor
    video_mask_BT: torch.Tensor
    tokens_BKL: torch.Tensor
    token_mask_BKL: torch.Tensor
    caption_mask_BK: torch.Tensor
    video_ids_B: torch.Tensor

    def to(self, device: torch.device) -> Batch:
        """The batch on `device`; copies from pinned memory do not block."""
        return Batch(**{f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)})

    def __len__(self) -> int:
        return self.video_BTD.shape[0]
