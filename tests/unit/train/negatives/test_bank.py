"""The memory bank: entries, draws, and that it can be saved."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from train.negatives.bank import Bank
from train.negatives.fresh import Fresh


def bank(size: int = 50, videos: int = 50, **options) -> Bank:
    given = {"momentum": 0.5, "normalise": False, "seed": 3} | options
    return Bank(videos, torch.zeros(2), size=size, **given)


def fresh(ids, video, text, mask) -> Fresh:
    return Fresh(torch.tensor(video), torch.tensor(text), torch.tensor(mask), torch.tensor(ids))


def entries(bank: Bank) -> tuple[dict, dict]:
    """Of everything that was seen: id -> vector, of videos and of texts."""
    video, ids, text, text_ids = bank.draw(0)
    return tuple({int(i): v.tolist() for i, v in zip(n, x, strict=True)} for n, x in ((ids, video), (text_ids, text)))


def test_an_entry_is_half_old_and_half_new_and_of_several_clips_the_last_one_counts():
    ours = bank()
    assert entries(ours) == ({}, {})
    ours.push(fresh([7, 9, 7], [[9.0, 9], [2, 2], [4, 0]], [[[1.0, 1]], [[3, 3]], [[5, 5]]], [[True], [False], [True]]))
    assert entries(ours) == ({7: [4, 0], 9: [2, 2]}, {7: [5, 5]})
    bags = [[[8.0, 0], [4, 2]], [[1, 1], [6, 6]]]
    ours.push(fresh([9, 7], [[4.0, 4], [0, 4]], bags, [[True, True], [True, False]]))
    assert entries(ours) == ({7: [2, 2], 9: [3, 3]}, {7: [3, 3], 9: [6, 1]})


def test_the_text_entry_is_of_the_captions_and_not_of_empty_slots():
    ours = bank()
    ours.push(fresh([1], [[1.0, 1]], [[[1.0, 3], [float("nan"), 8]]], [[True, False]]))
    assert entries(ours)[1] == {1: [1, 3]}


def test_entries_have_length_1_where_embeddings_have():
    ours = bank(normalise=True)
    for video in ([[1.0, 0]], [[0.0, 1]]):
        ours.push(fresh([3], video, [video], [[True]]))
    torch.testing.assert_close(torch.tensor(entries(ours)[0][3]), F.normalize(torch.tensor([1.0, 1]), dim=0))


@pytest.mark.parametrize("videos", [50, 70_000])
def test_draws_are_a_function_of_seed_and_step_without_repetition(videos):
    everything = fresh(list(range(50)), [[1.0, 1]] * 50, [[[1.0, 1]]] * 50, [[True]] * 50)

    size = 20 if videos == 50 else videos

    def drawn(step, seed=3):
        ours = bank(size, videos, seed=seed)
        ours.push(everything)
        return ours.draw(step).video_ids_Q.tolist()

    draws = [drawn(step) for step in range(3)]
    assert all(len(set(ids)) == len(ids) == min(size, 50) for ids in draws)
    assert draws[0] == drawn(0)
    assert draws[0] != draws[1] != draws[2]
    assert drawn(0, seed=4) != drawn(0)


def test_every_video_is_drawn_about_as_often():
    ours = bank(10)
    ours.push(fresh(list(range(50)), [[1.0, 1]] * 50, [[[1.0, 1]]] * 50, [[True]] * 50))
    counts = torch.bincount(torch.cat([ours.draw(step).video_ids_Q for step in range(500)]), minlength=50)
    assert counts.min() > 60
    assert counts.max() < 150


def test_a_saved_bank_is_the_bank():
    ours, other = bank(), bank()
    ours.push(fresh([3, 4], [[1.0, 0], [2, 1]], [[[1.0, 1]], [[1, 1]]], [[True], [False]]))
    other.load_state_dict(ours.state_dict())
    assert entries(other) == entries(ours) != ({}, {})
