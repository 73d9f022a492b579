"""What a loss takes beside embeddings, as its config tells: logits, and remembered negatives laid out for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from train.config import FitConfig
from train.delivery.arrays import BatchShape
from train.losses import AnyLossConfig, DistillConfig
from train.losses.grid import side_of_tiles
from train.model import TwoTower
from train.negatives import BankConfig
from train.negatives.config import AnyNegativesConfig
from train.negatives.sizing import EntryBytes, entry_bytes

# Similarities are of float32 at least.
_LOGIT = 4


class _Copies(NamedTuple):
    """How many of the size of the logits live at once in a backward: of a tile's, and of a matrix that is kept whole.
    laid_out: how often the texts of such a matrix are. Measured; a test holds them."""

    tile: int
    whole: int
    laid_out: int = 1


_COPIES = {
    "mil_nce": _Copies(4, 6),
    "info_nce": _Copies(4, 6),
    "dual_softmax": _Copies(12, 12, laid_out=2),
    "sigmoid": _Copies(5, 5),
    "distill": _Copies(5, 6),
}


def entry_of(
    config: FitConfig, model: TwoTower, shapes: Sequence[BatchShape], size: int, device: torch.device
) -> EntryBytes:
    """What one remembered video and caption of `size` takes on a rank, at most."""
    shape = max(shapes, key=lambda shape: shape.clips * (1 + shape.candidates))
    rows = shape.clips * (1 + shape.candidates)
    # Own clips with what is remembered make the smaller one of the two matrices, which is the last to be cut.
    kept = [
        _COPIES[part.name]
        for part in _parts(config.loss)
        if not isinstance(part, DistillConfig) and side_of_tiles(part.tile, shape.clips, size, 1, device) == 0
    ]
    return entry_bytes(
        model.dim,
        next(model.parameters()).element_size(),
        biased=model.logit_bias is not None,
        copies=1 + max((one.laid_out for one in kept), default=0),
        logits=max((rows * _LOGIT * one.whole for one in kept), default=0),
    )


def loss_bytes(config: FitConfig, shape: BatchShape, dim: int, ranks: int, device: torch.device, videos: int) -> int:
    """Of all matrices that are kept whole, and of the largest tile; with the texts that are laid out for them."""
    whole = tile = 0
    within = (shape.clips, ranks * shape.clips, shape.candidates)
    for part in _parts(config.loss):
        distils = isinstance(part, DistillConfig)
        for rows, columns, candidates in [within] if distils else [within, *_beyond(config, shape, videos)]:
            side = side_of_tiles(part.tile, rows, columns, candidates, device)
            # A teacher's distribution is over all texts: only rows are cut.
            texts = candidates * (columns if distils or side == 0 else min(side, columns))
            of_logits, of_texts = min(side or rows, rows) * texts * _LOGIT, texts * (dim + 2) * _LOGIT
            if side:
                tile = max(tile, of_logits * _COPIES[part.name].tile + of_texts)
            elif (rows, columns, candidates) == within:  # `entry_of` has those of what is remembered
                whole += of_logits * _COPIES[part.name].whole + of_texts * _COPIES[part.name].laid_out
    return whole + tile


def _beyond(config: FitConfig, shape: BatchShape, videos: int) -> list[tuple[int, int, int]]:
    """Rows, columns and candidates of each column: own clips, and own captions, against what is remembered."""
    if config.negatives is None:
        return []
    entries = drawn(config.negatives, videos)
    return [(shape.clips, entries, 1), (shape.clips * shape.candidates, entries, 1)]


def drawn(negatives: AnyNegativesConfig, videos: int) -> int:
    """Entries of each side that a step is compared with."""
    return min(negatives.size, videos) if isinstance(negatives, BankConfig) else negatives.size


def _parts(config: AnyLossConfig) -> list[AnyLossConfig]:
    """A loss, and the one that it is added to."""
    base = config.base if isinstance(config, DistillConfig) else None
    return [config] if base is None else [config, base]
