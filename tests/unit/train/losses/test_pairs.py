"""What a loss starts from: sizes, the choice of tiles, shares of ranks."""

from __future__ import annotations

import pytest
import torch

from train.distributed import World
from train.losses.pairs import make_pairs


def pairs_of(clips, *, rank=0, size=1, tile="auto", clamp=None):
    mask = torch.ones(clips * size, 4, dtype=torch.bool)
    mask[0] = False
    return make_pairs(
        torch.zeros(clips, 1),
        torch.zeros(clips * size, 4, 1),
        mask,
        torch.arange(clips * size),
        temperature=1.0,
        mask_same_video=True,
        tile=tile,
        clamp_gradient=clamp,
        world=World(rank, size, rank, torch.device("cpu")),
    )


def test_small_batches_keep_the_matrix_and_large_ones_are_tiled():
    assert pairs_of(100).side == 0
    assert pairs_of(1000).side == 256
    assert pairs_of(1000, tile=0).side == 0
    assert pairs_of(10, tile=3).side == 3


def test_shares_of_ranks_average_to_the_mean_over_clips_with_a_caption():
    term = torch.arange(8.0) + 1
    shares = [pairs_of(2, rank=rank, size=4).mean(term[2 * rank : 2 * rank + 2]) for rank in range(4)]
    assert torch.stack(shares).mean() == pytest.approx(term[1:].mean().item())
    totals = [pairs_of(2, rank=rank, size=4).total(term[2 * rank : 2 * rank + 2]) for rank in range(4)]
    assert torch.stack(totals).mean() == pytest.approx(term.sum().item() / 7)


def test_the_clamp_is_that_of_one_clip_in_the_global_mean():
    assert pairs_of(2, size=4, clamp=0.7).clamp == pytest.approx(0.7 * 4 / 7)


def test_clips_that_do_not_fit_the_ranks_are_a_bug():
    video, text, mask = torch.zeros(5, 2), torch.zeros(5, 1, 2), torch.ones(5, 1, dtype=torch.bool)
    options = {"temperature": 1.0, "mask_same_video": True, "tile": 0, "clamp_gradient": None}
    with pytest.raises(ValueError, match="5 bags of texts for 5 clips on each of 2 ranks"):
        make_pairs(video, text, mask, torch.arange(5), world=World(0, 2, 0, torch.device("cpu")), **options)
