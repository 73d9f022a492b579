"""Embeddings of a whole split, made by all ranks together, the same on every one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch.nn import functional as F

from train.data import WindowData
from train.delivery.windows import first_captions
from train.distributed import World, gather_plain
from train.metrics import Pairs
from train.model import TwoTower
from train.sharded_towers import runs_together

Captions = Literal["first", "all", "mean"]


@dataclass(frozen=True)
class EmbeddedSplit:
    """On the world's device, the same on every rank.

    video_ND: float32, one row a window, in the split's own order. text_MD: float32, one row a query text.
    text_P, window_P: int64, which text belongs to which window; by window, a window's nearest caption first.
    """

    video_ND: torch.Tensor
    text_MD: torch.Tensor
    text_P: torch.Tensor
    window_P: torch.Tensor

    def pairs(self) -> Pairs:
        """Texts ask for windows."""
        return Pairs.of(self.text_P, self.window_P)

    def first_text(self) -> torch.Tensor:
        """int64 (N,): the first text of each window, -1 without one."""
        text_N = torch.full((len(self.video_ND),), -1, dtype=torch.int64, device=self.text_P.device)
        # The last write to a place is not defined on every device, so only the first of each window is written.
        first_P = torch.ones_like(self.window_P, dtype=torch.bool)
        first_P[1:] = self.window_P[1:] != self.window_P[:-1]
        text_N[self.window_P[first_P]] = self.text_P[first_P]
        return text_N


@torch.no_grad()
def embed_split(
    model: TwoTower, data: WindowData, world: World, batch_size: int, captions: Captions = "first"
) -> EmbeddedSplit:
    """Every window and every caption that is asked for exactly once, whatever the world size.

    captions: `first` asks with each window's nearest caption; `all` with every caption of the split, each once, whose
    windows are all those with it in their bag; `mean` with the mean of the embeddings of a window's bag (an ensemble of
    prompts). Captions without a token ask nothing.
    """
    was_training = model.training
    model.eval()
    table = data.windows
    video_ND = _in_blocks(
        len(data), batch_size, model, world, lambda window_B: _videos(model, data, window_B, world.device)
    )
    window_P = np.repeat(np.arange(len(data)), table.bag_W)
    caption_P = np.asarray(table.candidates)
    if captions == "first":
        first_P = np.ones(len(window_P), bool)
        first_P[1:] = window_P[1:] != window_P[:-1]
        window_P, caption_P = window_P[first_P], caption_P[first_P]
    kept_P = data.manifest.token_offsets[caption_P + 1] > data.manifest.token_offsets[caption_P]
    window_P, caption_P = window_P[kept_P], caption_P[kept_P]
    caption_M, text_P = np.unique(caption_P, return_inverse=True)
    text_MD = _in_blocks(
        len(caption_M), batch_size, model, world, lambda n: _texts(model, data, caption_M[n], world.device)
    )
    model.train(was_training)
    text_P_, window_P_ = (torch.from_numpy(x).to(world.device) for x in (text_P, window_P))
    if captions == "all":
        return EmbeddedSplit(video_ND, text_MD, text_P_, window_P_)
    return _one_a_window(video_ND, text_MD[text_P_], window_P_, model.normalise)


def _one_a_window(
    video_ND: torch.Tensor, text_PD: torch.Tensor, window_P: torch.Tensor, normalise: bool
) -> EmbeddedSplit:
    """Every window with captions asks with the mean of them."""
    window_M, text_P, count_M = torch.unique(window_P, return_inverse=True, return_counts=True)
    if len(window_M) == len(window_P):
        return EmbeddedSplit(video_ND, text_PD, text_P, window_P)
    total_MD = torch.zeros(len(window_M), text_PD.shape[1], dtype=torch.float64, device=text_PD.device)
    total_MD.index_add_(0, text_P, text_PD.double())
    mean_MD = (total_MD / count_M[:, None]).float()
    text_MD = F.normalize(mean_MD, dim=1) if normalise else mean_MD
    return EmbeddedSplit(video_ND, text_MD, torch.arange(len(window_M), device=window_M.device), window_M)


def _videos(model: TwoTower, data: WindowData, window_B: np.ndarray, device: torch.device) -> torch.Tensor:
    batch = data.batch(first_captions(window_B, data.bag_W, 1)).to(device)
    return model.embed_video(batch.video_BTD, batch.video_mask_BT)


def _texts(model: TwoTower, data: WindowData, caption_B: np.ndarray, device: torch.device) -> torch.Tensor:
    if model.reads_embeddings:
        stored_B1E = torch.from_numpy(data.manifest.caption_embeddings(caption_B[:, None]))
        return model.embed_stored(stored_B1E[:, 0].to(device))
    ids_B1L, mask_B1L = map(torch.from_numpy, data.manifest.tokens(caption_B[:, None], data.tokens.max_tokens))
    return model.embed_text(ids_B1L[:, 0].to(device), mask_B1L[:, 0].to(device))


def _in_blocks(
    count: int, batch_size: int, model: TwoTower, world: World, embed: Callable[[np.ndarray], torch.Tensor]
) -> torch.Tensor:
    """float32 (count, dim): `embed` of the numbers 0 .. count - 1, a block at a time.

    The same blocks at every world size, which go round the ranks: so a sample always meets the same neighbours, and
    none is repeated to fill up; where the model runs on all ranks together, one without a block runs along.
    """
    batch_size = max(1, min(batch_size, count))
    blocks = range(0, count, batch_size)
    rounds = -(-len(blocks) // world.size)
    number_R = torch.full((rounds * batch_size,), -1, dtype=torch.int64, device=world.device)
    table_RD = torch.zeros(rounds * batch_size, model.dim, device=world.device)
    for place, start in enumerate(blocks[world.rank :: world.size]):
        number_B = np.arange(start, min(start + batch_size, count))
        rows = slice(place * batch_size, place * batch_size + len(number_B))
        table_RD[rows] = embed(number_B).float()
        number_R[rows] = torch.from_numpy(number_B).to(world.device)
    if len(blocks[world.rank :: world.size]) < rounds and runs_together(model):
        embed(np.arange(batch_size))
    table_RD, number_R = gather_plain(table_RD, world), gather_plain(number_R, world)
    ordered_ND = torch.empty(count, model.dim, device=world.device)
    ordered_ND[number_R[number_R >= 0]] = table_RD[number_R >= 0]
    return ordered_ND
