"""MIL-NCE against a double loop, its floors, the log 2 identity, and what ragged bags may not do."""

from __future__ import annotations

import math

import pytest
import torch

from train.losses import mil_nce


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("mask_same_video", [True, False])
@pytest.mark.parametrize("positives", ["once", "twice"])
def test_equals_the_double_loop(bags, loops, seed, mask_same_video, positives):
    video, text, mask, ids = bags(seed=seed, clips=2 + seed, candidates=1 + seed % 3)
    sums = loops(video, text, mask, ids, 0.3, mask_same_video)
    share = 2 if positives == "twice" else 1
    expected = sums.mean(lambda own, out, back: -math.log(own / (share * own + out + back)))
    actual = mil_nce(video, text, mask, ids, temperature=0.3, positives=positives, mask_same_video=mask_same_video)
    assert actual.dtype == torch.float64
    assert actual.item() == pytest.approx(expected, rel=1e-12)


def test_twice_is_log_2_plus_negatives_at_half_weight(bags, loops):
    video, text, mask, ids = bags(clips=7)
    half = loops(video, text, mask, ids, 0.5).mean(lambda own, out, back: math.log((own + (out + back) / 2) / own))
    twice = mil_nce(video, text, mask, ids, temperature=0.5, positives="twice")
    assert twice.item() == pytest.approx(math.log(2) + half, rel=1e-12)


@pytest.mark.parametrize(("positives", "floor"), [("once", 0.0), ("twice", math.log(2))])
def test_floor_is_reached_when_every_bag_matches(positives, floor):
    video = torch.eye(6, dtype=torch.float64)
    text = video.unsqueeze(1).expand(6, 4, 6)
    mask = torch.ones(6, 4, dtype=torch.bool)
    loss = mil_nce(video, text, mask, torch.arange(6), temperature=0.01, positives=positives)
    assert loss.item() == pytest.approx(floor, abs=1e-12)


def test_is_not_the_mean_of_log_probabilities():
    """That loss has floor log K for equal candidates; this one is about whether any of them fits."""
    video = torch.eye(3, dtype=torch.float64)
    text = torch.stack([video, -video], dim=1)
    loss = mil_nce(video, text, torch.ones(3, 2, dtype=torch.bool), torch.arange(3), temperature=0.02)
    assert loss.item() == pytest.approx(0.0, abs=1e-12)


def test_order_of_clips_and_of_candidates_does_not_matter(bags):
    video, text, mask, ids = bags(clips=8)
    clips, slots = torch.randperm(8), torch.randperm(3)
    plain = mil_nce(video, text, mask, ids, temperature=0.3)
    shuffled = mil_nce(video[clips], text[clips][:, slots], mask[clips][:, slots], ids[clips], temperature=0.3)
    torch.testing.assert_close(shuffled, plain, rtol=1e-12, atol=0)


def test_wider_padding_changes_nothing(bags):
    video, text, mask, ids = bags()
    wide_text = torch.cat([text, torch.randn(5, 2, 4, dtype=torch.float64)], dim=1)
    wide_mask = torch.cat([mask, torch.zeros(5, 2, dtype=torch.bool)], dim=1)
    torch.testing.assert_close(
        mil_nce(video, wide_text, wide_mask, ids, temperature=0.3), mil_nce(video, text, mask, ids, temperature=0.3)
    )


def test_one_clip_alone_has_no_negatives(bags):
    video, text, mask, ids = bags(clips=1)
    assert mil_nce(video, text, mask, ids, temperature=0.3).item() == pytest.approx(0, abs=1e-12)
