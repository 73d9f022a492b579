"""What every contrastive loss here starts from: this rank's clips, the texts of the global batch, and what counts.

A loss is the mean over the clips of the global batch that have a caption. Each rank computes the terms of its own clips
from its own rows of the similarity matrix, so no rank holds the whole matrix; what a text sums over the clips of all
ranks is completed by `logsumexp_over_ranks`. Negatives beyond the batch (beyond.py) join the sums of own clips and of
own texts, before the latter are completed. The scalar that a rank returns is its clips' share times the number of
ranks, so that the mean over ranks is the loss of the global batch (see train/distributed.py).

Letters as in grid.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from pydantic import Field

from shared.config import Config
from train.distributed import ALONE, World, logsumexp_over_ranks
from train.losses.beyond import Beyond, Block, clips_block, texts_block, with_bias
from train.losses.grid import Grid, TileSide, side_of_tiles
from train.losses.masking import at_least_float32, masked_logsumexp
from train.losses.reductions import LogSums, Reduction, RowLogSums, Tensors
from train.losses.tiled import grid_sums

TileSize = Literal["auto"] | Annotated[int, Field(ge=0)]


class PairConfig(Config):
    """mask_same_video: other clips of the anchor's video are not its negatives.

    sample_candidate: one candidate a clip and step, drawn from its bag, instead of all of them.
    tile: clips along the side of a tile of the similarity matrix; 0 keeps the whole matrix; auto keeps it while small.
    clamp_gradient: bound of the gradient of one clip's loss at one logit (at most 2 without), or null. With it, what is
    followed is no longer the gradient of the loss.
    """

    mask_same_video: bool = True
    sample_candidate: bool = False
    tile: TileSize = "auto"
    clamp_gradient: float | None = Field(default=None, gt=0)


@dataclass(frozen=True)
class Pairs:
    """video_BD: divided by the temperature, float32 or better. text_MD: of the global batch, empty slots as given.

    clips_beyond, texts_beyond: own clips against remembered texts, own texts against remembered videos, if any.
    """

    video_BD: torch.Tensor
    text_MD: torch.Tensor
    mask_NK: torch.Tensor
    ids_N: torch.Tensor
    mask_same_video: bool
    side: int
    clamp: torch.Tensor | None
    world: World
    clips_beyond: Block | None = None
    texts_beyond: Block | None = None

    @property
    def own(self) -> slice:
        rows = len(self.video_BD)
        return slice(self.world.rank * rows, (self.world.rank + 1) * rows)

    @property
    def own_mask(self) -> torch.Tensor:
        return self.mask_NK[self.own]

    def softened(self, prior: float) -> Pairs:
        """The same with all logits divided by `prior`."""
        clips, texts = (block and block.softened(prior) for block in (self.clips_beyond, self.texts_beyond))
        return replace(self, video_BD=self.video_BD / prior, clips_beyond=clips, texts_beyond=texts)

    def sums(self, reduction: Reduction, *, with_own: bool, vectors: Tensors = ()) -> tuple[torch.Tensor, ...]:
        """`grid_sums` of this rank's rows: what texts sum is over this rank's clips only."""
        first = self.own.start
        ids_B = self.ids_N[self.own]
        grid = Grid(ids_B, self.mask_NK, self.ids_N, first, with_own, self.mask_same_video, self.side)
        return grid_sums(reduction, grid, self.video_BD, self.text_MD, vectors, self.clamp)

    def sums_beyond(self, reduction: Reduction, vectors: tuple[Tensors, Tensors] = ((), ())) -> tuple[Tensors, Tensors]:
        """`Block.sums` of own clips (B,) against remembered texts, and of own texts (B*K,) against remembered videos;
        () where there is nothing. vectors: those of the two blocks."""
        blocks = (self.clips_beyond, self.texts_beyond)
        clips, texts = (block.sums(reduction, v) if block else () for block, v in zip(blocks, vectors, strict=True))
        return clips, texts

    def log_sums(
        self,
        reduction: LogSums,
        *,
        with_own: bool,
        vectors: Tensors = (),
        beyond: tuple[Tensors, Tensors] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """rows (B,): of each own clip over all texts, remembered ones included; texts (M,): of each text over all
        ranks' clips and the remembered ones; own (B, K).

        beyond: what `sums_beyond` gave for the same reduction; None for plain log-sums.
        """
        clips, texts = self.sums_beyond(RowLogSums()) if beyond is None else beyond
        rows_B, texts_M, own_BK = self.sums(reduction, with_own=with_own, vectors=vectors)
        if clips:
            rows_B = torch.logaddexp(rows_B, clips[0])
        if texts:
            # Into the own texts alone, so that what is the same on all ranks is counted once.
            before, own_M, after = self._around_own(texts_M)
            texts_M = torch.cat([before, torch.logaddexp(own_M, texts[0]), after])
        return rows_B, logsumexp_over_ranks(texts_M, self.world), own_BK

    def _around_own(self, texts_M: torch.Tensor) -> tuple[torch.Tensor, ...]:
        candidates = self.mask_NK.shape[1]
        return texts_M.tensor_split([self.own.start * candidates, self.own.stop * candidates])

    def logits(self, rows: slice) -> torch.Tensor:
        """(T, M): a block of own clips with all texts, `lowest` where a pair or slot counts for nothing."""
        first = self.own.start + rows.start
        ids_T = self.ids_N[self.own][rows]
        grid = Grid(ids_T, self.mask_NK, self.ids_N, first, True, self.mask_same_video, 0)
        [tile] = grid.tiles(slice(0, len(ids_T)))
        with torch.autocast(self.video_BD.device.type, enabled=False):
            return grid.logits(self.video_BD[rows], grid.clean(self.text_MD, tile.texts), tile)

    def own_bags(self, texts_M: torch.Tensor) -> torch.Tensor:
        """(B, K): of one number a text, those of the own clips."""
        return texts_M.view(self.mask_NK.shape)[self.own]

    def over_bag(self, x_BK: torch.Tensor) -> torch.Tensor:
        """(B,): log-sum-exp over each own clip's candidates."""
        return masked_logsumexp(x_BK, self.own_mask, dim=1)

    def mean(self, term_B: torch.Tensor) -> torch.Tensor:
        """This rank's share of the mean over all clips with a caption; zero, with zero gradient, if there are none."""
        captioned_B = self.own_mask.any(dim=1)
        return self.total(torch.where(captioned_B, term_B, torch.zeros_like(term_B)))

    def total(self, term_B: torch.Tensor) -> torch.Tensor:
        """The same, but every own clip's term is in the sum; it is still divided by the clips with a caption."""
        return term_B.sum() * self.world.size / captioned_clips(self.mask_NK)


def make_pairs(
    video_BD: torch.Tensor,
    text_NKD: torch.Tensor,
    mask_NK: torch.Tensor,
    ids_N: torch.Tensor,
    *,
    temperature: torch.Tensor | float,
    mask_same_video: bool,
    tile: TileSide,
    clamp_gradient: float | None,
    bias: torch.Tensor | float | None = None,
    beyond: Beyond | None = None,
    world: World = ALONE,
) -> Pairs:
    """The arguments of a loss, checked for their sizes; differentiable in video, text, temperature and bias.

    bias: added to every logit. beyond: remembered negatives, or None. Raises ValueError when the ids are not
    those of `world.size` times these clips.
    """
    rows, (clips, candidates) = len(video_BD), mask_NK.shape
    if clips != rows * world.size:
        raise ValueError(f"{clips} bags of texts for {rows} clips on each of {world.size} ranks, expected as many")
    own = slice(rows * world.rank, rows * (world.rank + 1))
    with torch.autocast(video_BD.device.type, enabled=False):
        scaled_BD, text_MD = at_least_float32(video_BD) / temperature, at_least_float32(text_NKD).flatten(0, 1)
        if bias is not None:
            scaled_BD = with_bias(scaled_BD, bias)
            text_MD = torch.cat([text_MD, text_MD.new_ones(len(text_MD), 1)], dim=1)
        clamp = None
        if clamp_gradient is not None:
            # In the logits' precision: a number over a tensor of integers would be float32.
            clamp = clamp_gradient * world.size / captioned_clips(mask_NK).to(scaled_BD.dtype)
        clips_beyond = texts_beyond = None
        if beyond is not None:
            clips_beyond = clips_block(beyond, scaled_BD, ids_N[own], biased=bias is not None, tile=tile, clamp=clamp)
            texts_beyond = texts_block(
                beyond,
                text_NKD[own],
                mask_NK[own],
                ids_N[own],
                temperature=temperature,
                bias=bias,
                tile=tile,
                clamp=clamp,
            )
    side = side_of_tiles(tile, rows, clips, candidates, video_BD.device)
    return Pairs(scaled_BD, text_MD, mask_NK, ids_N, mask_same_video, side, clamp, world, clips_beyond, texts_beyond)


def captioned_clips(mask_NK: torch.Tensor) -> torch.Tensor:
    """Scalar, at least 1: the clips with a caption."""
    return mask_NK.any(dim=1).sum().clamp(min=1)
