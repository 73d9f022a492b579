"""Negatives beyond the batch: remembered videos and captions, which this rank's clips and captions are compared with.

Own clips stand in the rows of one block and remembered texts in its columns; in the other block own texts stand in rows
and remembered videos in columns. So no rank computes what another one does, and of the rows nothing need be gathered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from train.losses.grid import Grid, TileSide, lowest, side_of_tiles
from train.losses.masking import at_least_float32
from train.losses.reductions import Reduction, Tensors
from train.losses.tiled import grid_sums


class Beyond(NamedTuple):
    """What is remembered: constants, the same on all ranks. Either side may be empty.

    video_QD: floating (Q, D), text_PD: floating (P, D); video_ids_Q, text_ids_P: int64, the videos that they are of.
    A loss leaves out pairs of one video by id, whatever `mask_same_video` says: the entry may be of this very clip.
    """

    video_QD: torch.Tensor
    video_ids_Q: torch.Tensor
    text_PD: torch.Tensor
    text_ids_P: torch.Tensor

    def texts_only(self) -> Beyond:
        return self._replace(video_QD=self.video_QD[:0], video_ids_Q=self.video_ids_Q[:0])

    def videos_only(self) -> Beyond:
        return self._replace(text_PD=self.text_PD[:0], text_ids_P=self.text_ids_P[:0])


@dataclass(frozen=True)
class Block:
    """Own rows against remembered columns. row_RD: divided by the temperature; column_CD: as wide, and a 1 at its end.

    kept_R: bool, False for an empty slot, whose row is in no sum. row_ids_R, column_ids_C: int64, their videos.
    side, clamp: as of Pairs.
    """

    row_RD: torch.Tensor
    kept_R: torch.Tensor
    row_ids_R: torch.Tensor
    column_CD: torch.Tensor
    column_ids_C: torch.Tensor
    side: int
    clamp: torch.Tensor | None

    def softened(self, prior: float) -> Block:
        """The same with all logits divided by `prior`."""
        return replace(self, row_RD=self.row_RD / prior)

    def sums(self, reduction: Reduction, vectors: Tensors = ()) -> Tensors:
        """The reduction's sums: rows (R,), then columns (C,) over this rank's rows if it has them.

        vectors: (R,) and (C,), where the reduction wants them.
        """
        # The columns' last dimension adds this to all logits of a row.
        offset_R1 = self.row_RD.new_zeros(len(self.row_RD), 1).masked_fill_(
            ~self.kept_R.unsqueeze(1), lowest(self.row_RD)
        )
        row_RD = torch.cat([self.row_RD, offset_R1], dim=1)
        every_C1 = torch.ones(len(self.column_CD), 1, dtype=torch.bool, device=self.kept_R.device)
        grid = Grid(self.row_ids_R, every_C1, self.column_ids_C, None, False, True, self.side)
        *sums, _ = grid_sums(reduction, grid, row_RD, self.column_CD, vectors, self.clamp)
        return tuple(sums)


def with_bias(row_RD: torch.Tensor, bias: torch.Tensor | float) -> torch.Tensor:
    """One more dimension, which meets a 1, adds the bias to all logits at no cost in code or in passes."""
    bias_R1 = torch.as_tensor(bias, dtype=row_RD.dtype, device=row_RD.device).expand(len(row_RD), 1)
    return torch.cat([row_RD, bias_R1], dim=1)


def clips_block(
    beyond: Beyond,
    row_BD: torch.Tensor,
    ids_B: torch.Tensor,
    *,
    biased: bool,
    tile: TileSide,
    clamp: torch.Tensor | None,
) -> Block | None:
    """Own clips against remembered texts; None where there are none. row_BD: scaled, with the bias if `biased`."""
    if not len(beyond.text_PD):
        return None
    column_PD = _columns(beyond.text_PD, 2 if biased else 1)
    side = side_of_tiles(tile, len(row_BD), len(column_PD), 1, row_BD.device)
    every_B = torch.ones_like(ids_B, dtype=torch.bool)
    return Block(row_BD, every_B, ids_B, column_PD, beyond.text_ids_P, side, clamp)


def texts_block(
    beyond: Beyond,
    text_BKD: torch.Tensor,
    mask_BK: torch.Tensor,
    ids_B: torch.Tensor,
    *,
    temperature: torch.Tensor | float,
    bias: torch.Tensor | float | None,
    tile: TileSide,
    clamp: torch.Tensor | None,
) -> Block | None:
    """Own texts, B*K rows, against remembered videos; None where there are none."""
    if not len(beyond.video_QD):
        return None
    kept_R = mask_BK.flatten()
    text_RD = at_least_float32(text_BKD).flatten(0, 1)
    # Whatever stands in an empty slot, NaN included, reaches nothing.
    row_RD = torch.where(kept_R.unsqueeze(1), text_RD, torch.zeros_like(text_RD)) / temperature
    row_RD = row_RD if bias is None else with_bias(row_RD, bias)
    column_QD = _columns(beyond.video_QD, 1 if bias is None else 2)
    side = side_of_tiles(tile, len(row_RD), len(column_QD), 1, row_RD.device)
    return Block(row_RD, kept_R, ids_B.repeat_interleave(mask_BK.shape[1]), column_QD, beyond.video_ids_Q, side, clamp)


def _columns(column_CD: torch.Tensor, ones: int) -> torch.Tensor:
    """Remembered vectors in the logits' precision, without gradient, and `ones` dimensions of 1."""
    raised_CD = at_least_float32(column_CD.detach())
    return torch.cat([raised_CD, raised_CD.new_ones(len(raised_CD), ones)], dim=1)
