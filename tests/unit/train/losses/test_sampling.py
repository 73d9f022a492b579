"""One candidate a clip: of its own, equally often, the same for every rank and every repetition."""

from __future__ import annotations

import torch

from train.losses import sample_candidate


def test_one_existing_candidate_of_every_bag_and_none_of_an_empty_one():
    mask = torch.tensor([[True, False, True], [False, False, False], [False, True, False]])
    for step in range(50):
        drawn = sample_candidate(mask, seed=1, step=step)
        assert drawn.sum(dim=1).tolist() == [1, 0, 1]
        assert not (drawn & ~mask).any()


def test_equally_often():
    mask = torch.tensor([[True, True, False, True]])
    counts = sum(sample_candidate(mask, seed=4, step=step).int() for step in range(3000))
    assert counts[0, 2] == 0
    assert all(abs(int(count) - 1000) < 120 for count in counts[0, [0, 1, 3]])


def test_a_function_of_seed_step_and_place_and_not_of_the_width_of_the_padding():
    mask = torch.ones(40, 3, dtype=torch.bool)
    wide = torch.cat([mask, torch.zeros(40, 2, dtype=torch.bool)], dim=1)
    drawn = sample_candidate(mask, seed=4, step=9)
    assert torch.equal(sample_candidate(wide, seed=4, step=9)[:, :3], drawn)
    assert not torch.equal(sample_candidate(mask, seed=4, step=10), drawn)
    assert not torch.equal(sample_candidate(mask, seed=5, step=9), drawn)
