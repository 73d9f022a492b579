"""Where each similarity of a global batch stands: this rank's clips in rows, all texts in columns, cut into tiles.

Letters: B own clips, N clips of the global batch, K candidates, M = N*K texts, D dimensions; T rows and V texts of a
tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch


class Tile(NamedTuple):
    """rows: of own clips. texts: columns, whole bags. excluded_TU: bool, pairs of clips in no sum; None if all are."""

    rows: slice
    texts: slice
    excluded_TU: torch.Tensor | None


@dataclass(frozen=True)
class Grid:
    """mask_NK, ids_N: of the global batch. first, rows: this rank's clips are [first, first + rows) of it.

    with_own: a clip's own texts are in the sums, else they are left out. mask_same_video: other clips of a clip's video
    are left out. side: clips along the side of a tile, 0 for one tile over everything.
    """

    mask_NK: torch.Tensor
    ids_N: torch.Tensor
    first: int
    rows: int
    with_own: bool
    mask_same_video: bool
    side: int

    @property
    def own(self) -> slice:
        return slice(self.first, self.first + self.rows)

    def row_blocks(self) -> Iterator[slice]:
        yield from blocks(self.rows, self.side)

    def tiles(self, rows: slice) -> Iterator[Tile]:
        """The tiles of a block of rows, left to right."""
        candidates = self.mask_NK.shape[1]
        excluded_TN = self._excluded(rows)
        # One answer for all tiles of the block: on a GPU each would be a wait of its own.
        touched_N = excluded_TN.any(dim=0).tolist()
        for clips in blocks(len(self.ids_N), self.side):
            texts = slice(clips.start * candidates, clips.stop * candidates)
            yield Tile(rows, texts, excluded_TN[:, clips] if any(touched_N[clips]) else None)

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
        """The texts of a block of own clips."""
        candidates = self.mask_NK.shape[1]
        return slice((self.first + rows.start) * candidates, (self.first + rows.stop) * candidates)

    def _excluded(self, rows: slice) -> torch.Tensor:
        number_N = torch.arange(len(self.ids_N), device=self.ids_N.device)
        own_TN = number_N[self.own][rows, None] == number_N
        if not self.mask_same_video:
            return torch.zeros_like(own_TN) if self.with_own else own_TN
        same_TN = self.ids_N[self.own][rows, None] == self.ids_N
        return same_TN & ~own_TN if self.with_own else same_TN | own_TN


def blocks(length: int, size: int) -> Iterator[slice]:
    """[0, length) in blocks of `size`, the last one shorter; one block where `size` is 0."""
    step = size or max(length, 1)
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def lowest(x: torch.Tensor) -> float:
    """What stands for log 0: finite, because the gradient of a log-sum-exp over nothing but -inf is NaN."""
    return torch.finfo(x.dtype).min / 4
