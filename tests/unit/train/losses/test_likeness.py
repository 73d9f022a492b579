from __future__ import annotations

import pytest
import torch

from train.distributed import World
from train.losses.likeness import directions, mean_cosines


def brute(x_ND: torch.Tensor) -> float:
    pairs = [
        float(torch.nn.functional.cosine_similarity(x_ND[i], x_ND[j], dim=0))
        for i in range(len(x_ND))
        for j in range(len(x_ND))
        if i != j
    ]
    return sum(pairs) / len(pairs)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_ranks_sums_give_the_mean_over_all_pairs(ranks):
    draw = torch.Generator().manual_seed(3)
    video_ND = torch.randn(6, 5, generator=draw, dtype=torch.float64) + 1
    text_NKD = torch.randn(6, 2, 5, generator=draw, dtype=torch.float64)
    mask_NK = torch.tensor([[True, True]] * 3 + [[False, False]] + [[True, False]] * 2)
    size = 6 // ranks
    total_2D = sum(
        directions(
            video_ND[rank * size : (rank + 1) * size],
            text_NKD,
            mask_NK,
            World(rank, ranks, rank, torch.device("cpu")),
        )
        for rank in range(ranks)
    )
    videos, texts = mean_cosines(total_2D)
    assert videos == pytest.approx(brute(video_ND))
    assert texts == pytest.approx(brute(text_NKD[mask_NK[:, 0], 0]))


def test_a_collapsed_model_is_at_one_and_too_few_clips_at_nothing():
    same_ND = torch.ones(4, 3)
    assert mean_cosines(directions(same_ND, same_ND[:, None], torch.ones(4, 1, dtype=torch.bool))) == pytest.approx(
        (1.0, 1.0)
    )
    assert mean_cosines(directions(same_ND[:1], same_ND[:1, None], torch.zeros(1, 1, dtype=torch.bool))) == (0.0, 0.0)
