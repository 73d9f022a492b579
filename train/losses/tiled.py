"""Sums over all logits of a grid, by tiles that are computed again for the gradient instead of being kept.

Memory beside inputs and their gradients is O(tile + B + M), not O(B x M); the price is one more matrix product. The
idea is that of chunked and blockwise contrastive losses (Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size
under Memory Limited Setup"; Cheng et al. 2024, "Breaking the Memory Barrier"); here one pass serves both directions.
"""

from __future__ import annotations

from typing import Any

import torch

from train.losses.grid import Grid, lowest
from train.losses.reductions import Part, Reduction, Tensors


def grid_sums(
    reduction: Reduction,
    grid: Grid,
    video_BD: torch.Tensor,
    text_MD: torch.Tensor,
    vectors: Tensors = (),
    clamp: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:
    """The reduction's sums over the logits video . text: rows (B,), then texts (M,) if it has them, then the clips' own
    logits (B, K), zero in empty slots, or (B, 0) where no row has own texts. Differentiable once in video, text and
    vectors.

    vectors: (B,) of the rows and (M,) of the texts, where the reduction wants them. clamp: scalar, the largest absolute
    gradient at one logit, or None. Precision is that of the inputs, whatever the autocast.
    """
    with torch.autocast(video_BD.device.type, enabled=False):
        if grid.side == 0:
            return _whole(reduction, grid, video_BD, text_MD, vectors, clamp)
        results = _Tiled.apply(reduction, grid, clamp, video_BD, text_MD, *vectors)
    assert isinstance(results, tuple)
    return results


def _whole(
    reduction: Reduction,
    grid: Grid,
    video_BD: torch.Tensor,
    text_MD: torch.Tensor,
    vectors: Tensors,
    clamp: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:
    """One tile over everything, left to autograd: what small batches use, and what the tiles are tested against."""
    [rows] = grid.row_blocks()
    [tile] = grid.tiles(rows)
    clean_MD = grid.clean(text_MD, tile.texts)
    own_BK = _own_logits(video_BD, clean_MD[grid.own_texts(rows)], grid.own_candidates)
    logit_BM = grid.logits(video_BD, clean_MD, tile)
    if clamp is not None:
        for x in (own_BK, logit_BM):
            if x.requires_grad:
                x.register_hook(lambda gradient: gradient.clamp(-clamp, clamp))  # type: ignore[no-untyped-call]
    return *reduction.reduce(Part(logit_BM, vectors)), own_BK


def _own_logits(video_TD: torch.Tensor, text_VD: torch.Tensor, candidates: int) -> torch.Tensor:
    """(T, K): each clip with its own texts."""
    bags_TKD = text_VD.view(len(video_TD), candidates, video_TD.shape[1])
    return (bags_TKD @ video_TD.unsqueeze(-1)).squeeze(-1)


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        reduction: Reduction,
        grid: Grid,
        clamp: torch.Tensor | None,
        video_BD: torch.Tensor,
        text_MD: torch.Tensor,
        *vectors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        join = torch.logaddexp if reduction.in_logs else torch.add
        sums: list[torch.Tensor] = []
        own_BK = video_BD.new_zeros(len(video_BD), grid.own_candidates)
        for rows in grid.row_blocks():
            video_TD = video_BD[rows]
            own_BK[rows] = _own_logits(video_TD, grid.clean(text_MD, grid.own_texts(rows)), grid.own_candidates)
            for tile in grid.tiles(rows):
                logit_TV = grid.logits(video_TD, grid.clean(text_MD, tile.texts), tile)
                parts = reduction.reduce(Part(logit_TV, _cut(vectors, tile.rows, tile.texts)))
                if not sums:
                    empty = lowest(video_BD) if reduction.in_logs else 0.0
                    sums = [video_BD.new_full((n,), empty) for n in (len(video_BD), len(text_MD))[: len(parts)]]
                for whole, part, where in zip(sums, parts, (tile.rows, tile.texts), strict=False):
                    whole[where] = join(whole[where], part)
        ctx.reduction, ctx.grid, ctx.clamp, ctx.vectors = reduction, grid, clamp, len(vectors)
        ctx.save_for_backward(video_BD, text_MD, *vectors, *sums)
        return *sums, own_BK

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        video_BD, text_MD, *rest = ctx.saved_tensors
        with torch.autocast(video_BD.device.type, enabled=False):
            vectors, sums = tuple(rest[: ctx.vectors]), tuple(rest[ctx.vectors :])
            # Keys and what a queue remembers are constants: half of the products can be spared.
            wanted = ctx.needs_input_grad[3:5]
            results = _pull_back(ctx.reduction, ctx.grid, ctx.clamp, wanted, video_BD, text_MD, vectors, sums, grads)
        return None, None, None, *results


def _pull_back(
    reduction: Reduction,
    grid: Grid,
    clamp: torch.Tensor | None,
    wanted: tuple[bool, bool],
    video_BD: torch.Tensor,
    text_MD: torch.Tensor,
    vectors: Tensors,
    sums: Tensors,
    grads: Tensors,
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of video and text, None for one that is not wanted, and of the vectors, from those of the sums and of
    the own logits (last)."""
    *sum_grads, own_grad_BK = grads
    video_grad_BD, text_grad_MD = (
        torch.zeros_like(x) if want else None for x, want in zip((video_BD, text_MD), wanted, strict=True)
    )
    vector_grads = [torch.zeros_like(x) for x in vectors]
    for rows in grid.row_blocks():
        own = grid.own_texts(rows)
        own_grad_TK = _clamped(own_grad_BK[rows], clamp)
        if video_grad_BD is not None:
            bags_TKD = grid.clean(text_MD, own).view(*own_grad_TK.shape, video_BD.shape[1])
            video_grad_BD[rows] += (own_grad_TK.unsqueeze(1) @ bags_TKD).squeeze(1)
        if text_grad_MD is not None:
            text_grad_MD[own] += (own_grad_TK.unsqueeze(-1) * video_BD[rows].unsqueeze(1)).flatten(0, 1)
        for tile in grid.tiles(rows):
            text_VD = grid.clean(text_MD, tile.texts)
            logit_TV = grid.logits(video_BD[rows], text_VD, tile)
            places = (tile.rows, tile.texts)
            part = Part(logit_TV, _cut(vectors, *places), _cut(sums, *places), _cut(tuple(sum_grads), *places))
            grad_TV, parts = reduction.gradient(part)
            grad_TV = _clamped(grad_TV, clamp)
            if video_grad_BD is not None:
                video_grad_BD[rows].addmm_(grad_TV, text_VD)
            if text_grad_MD is not None:
                text_grad_MD[tile.texts].addmm_(grad_TV.T, video_BD[rows])
            for whole, piece, where in zip(vector_grads, parts, places, strict=False):
                whole[where] += piece
    return video_grad_BD, text_grad_MD, *vector_grads


def _cut(vectors: Tensors, rows: slice, texts: slice) -> Tensors:
    return tuple(vector[where] for vector, where in zip(vectors, (rows, texts), strict=False))


def _clamped(gradient: torch.Tensor, clamp: torch.Tensor | None) -> torch.Tensor:
    return gradient if clamp is None else gradient.clamp(-clamp, clamp)
