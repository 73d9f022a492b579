"""The share of clips that find their own text."""

from __future__ import annotations

import pytest
import torch

import train.losses.accuracy
from train.distributed import World
from train.losses.accuracy import share_of_clips_won


def test_counts_clips_with_captions_and_no_ties():
    video = torch.eye(4)
    text = video.unsqueeze(1).repeat(1, 2, 1)
    mask = torch.tensor([[True, True], [True, False], [True, True], [False, False]])
    ids = torch.arange(4)
    assert share_of_clips_won(video, text, mask, ids) == 1
    assert share_of_clips_won(torch.ones(4, 4), torch.ones(4, 2, 4), mask, ids) == 0
    text[0] = 0
    text[1] = video[0]
    assert share_of_clips_won(video, text, mask, ids) == pytest.approx(1 / 3)
    assert share_of_clips_won(video, text, torch.zeros_like(mask), ids) == 0


def test_texts_of_the_same_video_are_no_rivals():
    video = torch.eye(3)
    text, mask = torch.eye(3)[[1, 0, 2]].unsqueeze(1), torch.ones(3, 1, dtype=torch.bool)
    assert share_of_clips_won(video, text, mask, torch.tensor([1, 2, 3])) == pytest.approx(1 / 3)
    # Clip 0's own text is orthogonal to it, its sister's is no rival, and clip 2's ties with its own.
    assert share_of_clips_won(video, text, mask, torch.tensor([1, 1, 3])) == pytest.approx(1 / 3)


def test_blocks_and_ranks_add_up(bags, monkeypatch):
    video, text, mask, ids = bags(clips=12, seed=3)
    whole = share_of_clips_won(video, text, mask, ids)
    assert 0 < whole < 1
    monkeypatch.setattr(train.losses.accuracy, "_BLOCK", 5 * mask.numel())
    assert share_of_clips_won(video, text, mask, ids) == whole
    worlds = [World(rank, 3, rank, torch.device("cpu")) for rank in range(3)]
    shares = [
        share_of_clips_won(part, text, mask, ids, world) for part, world in zip(video.split(4), worlds, strict=True)
    ]
    assert sum(shares) / 3 == pytest.approx(whole.item())
