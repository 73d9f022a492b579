"""What the data side hands to a step: one typed batch."""

from __future__ import annotations

from dataclasses import dataclass

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
    caption_BKE: stored embeddings of the captions, floating, anything where caption_mask_BK is False; None unless the
    text tower reads them.
    """

    video_BTD: torch.Tensor
    video_mask_BT: torch.Tensor
    tokens_BKL: torch.Tensor
    token_mask_BKL: torch.Tensor
    caption_mask_BK: torch.Tensor
    video_ids_B: torch.Tensor
    caption_BKE: torch.Tensor | None = None

    @property
    def present(self) -> dict[str, torch.Tensor]:
        """The fields that there are, by name."""
        return {name: tensor for name, tensor in vars(self).items() if tensor is not None}

    def to(self, device: torch.device) -> Batch:
        """The batch on `device`; copies from pinned memory do not block."""
        return Batch(**{name: tensor.to(device, non_blocking=True) for name, tensor in self.present.items()})

    def __len__(self) -> int:
        return self.video_BTD.shape[0]
