"""Where each similarity stands: this rank's rows against columns in bags, cut into tiles.

Letters: B rows (this rank's clips), N clips of the global batch, K candidates, M = N*K texts, D dimensions; T rows, U
clips and V texts of a tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

TileSide = int | Literal["auto"]
# Logits of one rank above which `auto` cuts tiles: below, the whole matrix costs little and is computed once.
_WHOLE_LOGITS = 1 << 18
# Logits of a tile: on a CPU so few that a tile stays in a core's cache, on a GPU so many that it is kept busy.
_TILE_LOGITS = {"cpu": 1 << 18, "cuda": 1 << 24}


class Tile(NamedTuple):
    """rows: of the grid. texts: columns, whole bags. excluded_TU: bool, pairs of clips in no sum; None if all are."""

    rows: slice
    texts: slice
    excluded_TU: torch.Tensor | None


@dataclass(frozen=True)
class Grid:
    """row_ids_B: the rows' videos. mask_NK, ids_N: the columns, in bags, and the bags' videos.

    first: row r is clip `first + r` of the columns, whose bag is its own; None where no row has a bag among them.
    with_own: a clip's own texts are in the sums, else they are left out. mask_same_video: other columns of a row's
    video are left out. side: clips along the side of a tile, 0 for one tile over everything.
    """

    row_ids_B: torch.Tensor
    mask_NK: torch.Tensor
    ids_N: torch.Tensor
    first: int | None
    with_own: bool
    mask_same_video: bool
    side: int

    @property
    def own_candidates(self) -> int:
        """Columns that are a row's own."""
        return 0 if self.first is None else self.mask_NK.shape[1]

    def row_blocks(self) -> Iterator[slice]:
        yield from blocks(len(self.row_ids_B), self.side)

    def tiles(self, rows: slice) -> Iterator[Tile]:
        """The tiles of a block of rows, left to right."""
        candidates = self.mask_NK.shape[1]
        # One answer for all tiles of the block: on a GPU each would be a wait of its own.
        touched_N = self._touched(rows).tolist()
        for clips in blocks(len(self.ids_N), self.side):
            texts = slice(clips.start * candidates, clips.stop * candidates)
            yield Tile(rows, texts, self._excluded(rows, clips) if any(touched_N[clips]) else None)

    def logits(self, video_TD: torch.Tensor, text_VD: torch.Tensor, tile: Tile) -> torch.Tensor:
        """(T, V) products, `lowest` where the pair or the slot counts for nothing. text_VD as `clean` gave it."""
        low = lowest(video_TD)
        kept_V = self.mask_NK.flatten()[tile.texts]
        offset_V = torch.where(kept_V, torch.zeros_like(text_VD[:, 0]), torch.full_like(text_VD[:, 0], low))
        product_TV = torch.addmm(offset_V, video_TD, text_VD.T)
        if tile.excluded_TU is not None:
            shape = (*tile.excluded_TU.shape, self.mask_NK.shape[1])
            product_TV.view(shape).masked_fill_(tile.excluded_TU.unsqueeze(-1), low)
        return product_TV

    def clean(self, text_MD: torch.Tensor, texts: slice) -> torch.Tensor:
        """(V, D) texts with zeros in empty slots: whatever stands there, NaN included, reaches nothing."""
        kept_V1 = self.mask_NK.flatten()[texts].unsqueeze(-1)
        return torch.where(kept_V1, text_MD[texts], torch.zeros((), dtype=text_MD.dtype, device=text_MD.device))

    def own_texts(self, rows: slice) -> slice:
        """The texts of a block of own clips; empty where rows have none."""
        if self.first is None:
            return slice(0, 0)
        candidates = self.mask_NK.shape[1]
        return slice((self.first + rows.start) * candidates, (self.first + rows.stop) * candidates)

    def _touched(self, rows: slice) -> torch.Tensor:
        """(N,) bool, True where a pair with a row of this block may be in no sum."""
        if self.mask_same_video:
            return torch.isin(self.ids_N, self.row_ids_B[rows])
        return self._own(rows, slice(0, len(self.ids_N))).any(dim=0)

    def _own(self, rows: slice, clips: slice) -> torch.Tensor:
        """(T, U) bool, True where a row is that clip."""
        row_T = torch.arange(rows.start, rows.stop, device=self.ids_N.device)
        clip_U = torch.arange(clips.start, clips.stop, device=self.ids_N.device)
        if self.first is None:
            return torch.zeros(len(row_T), len(clip_U), dtype=torch.bool, device=self.ids_N.device)
        return (row_T[:, None] + self.first) == clip_U

    def _excluded(self, rows: slice, clips: slice) -> torch.Tensor:
        own_TU = self._own(rows, clips)
        if not self.mask_same_video:
            return torch.zeros_like(own_TU) if self.with_own else own_TU
        same_TU = self.row_ids_B[rows, None] == self.ids_N[clips]
        return same_TU & ~own_TU if self.with_own else same_TU | own_TU


def side_of_tiles(tile: TileSide, rows: int, clips: int, candidates: int, device: torch.device) -> int:
    """Clips along the side of a tile, as configured or by the number of logits; 0 for one tile over everything."""
    if tile != "auto":
        return tile
    if rows * clips * candidates <= _WHOLE_LOGITS:
        return 0
    return max(1, int((_TILE_LOGITS["cuda" if device.type == "cuda" else "cpu"] / candidates) ** 0.5))


def blocks(length: int, size: int) -> Iterator[slice]:
    """[0, length) in blocks of `size`, the last one shorter; one block where `size` is 0."""
    step = size or max(length, 1)
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def lowest(x: torch.Tensor) -> float:
    """What stands for log 0: finite, because the gradient of a log-sum-exp over nothing but -inf is NaN."""
    return torch.finfo(x.dtype).min / 4
