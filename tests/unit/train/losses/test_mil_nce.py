"""MIL-NCE against a double loop, its floors, the log 2 identity, its gradients, and what ragged bags may not do."""

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


@pytest.mark.parametrize("positives", ["once", "twice"])
def test_gradients(bags, positives):
    video, text, mask, ids = bags()
    temperature = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)

    def loss(video, text, temperature):
        return mil_nce(video, text, mask, ids, temperature=temperature, positives=positives)

    assert torch.autograd.gradcheck(loss, (video.requires_grad_(), text.requires_grad_(), temperature))


def test_order_of_clips_and_of_candidates_does_not_matter(bags):
    video, text, mask, ids = bags(clips=8)
    clips, slots = torch.randperm(8), torch.randperm(3)
    plain = mil_nce(video, text, mask, ids, temperature=0.3)
    shuffled = mil_nce(video[clips], text[clips][:, slots], mask[clips][:, slots], ids[clips], temperature=0.3)
    torch.testing.assert_close(shuffled, plain, rtol=1e-12, atol=0)


@pytest.mark.parametrize("rubbish", [1e30, math.nan, math.inf])
def test_empty_slots_reach_neither_value_nor_gradient(bags, rubbish):
    video, text, mask, ids = bags()
    dirty = torch.where(mask.unsqueeze(-1), text, torch.full_like(text, rubbish)).requires_grad_()
    clean = text.clone().requires_grad_()
    losses = [mil_nce(video.requires_grad_(), texts, mask, ids, temperature=0.3) for texts in (clean, dirty)]
    gradients = [torch.autograd.grad(x, [video, t]) for x, t in zip(losses, (clean, dirty), strict=True)]
    assert torch.equal(*losses)
    assert torch.equal(gradients[0][0], gradients[1][0])
    assert torch.equal(gradients[0][1], gradients[1][1])
    assert not gradients[1][1][~mask].any()


def test_wider_padding_changes_nothing(bags):
    video, text, mask, ids = bags()
    wide_text = torch.cat([text, torch.randn(5, 2, 4, dtype=torch.float64)], dim=1)
    wide_mask = torch.cat([mask, torch.zeros(5, 2, dtype=torch.bool)], dim=1)
    torch.testing.assert_close(
        mil_nce(video, wide_text, wide_mask, ids, temperature=0.3), mil_nce(video, text, mask, ids, temperature=0.3)
    )


@pytest.mark.parametrize("clips", [1, 4])
def test_without_any_candidate_loss_and_gradients_are_zero(bags, clips):
    video, text, mask, ids = bags(clips=clips)
    video.requires_grad_()
    loss = mil_nce(video, text, torch.zeros_like(mask), ids, temperature=0.3)
    assert loss.item() == 0
    assert not torch.autograd.grad(loss, video)[0].any()


def test_one_clip_alone_has_no_negatives(bags):
    video, text, mask, ids = bags(clips=1)
    assert mil_nce(video, text, mask, ids, temperature=0.3).item() == pytest.approx(0, abs=1e-12)


def test_half_precision_input_is_computed_in_float32_under_autocast(bags):
    video, text, mask, ids = bags(clips=6)
    video, text = (x.to(torch.bfloat16) for x in (video, text))
    expected = mil_nce(video.float(), text.float(), mask, ids, temperature=0.05)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = mil_nce(video, text, mask, ids, temperature=0.05)
        from_float32 = mil_nce(video.float(), text.float(), mask, ids, temperature=0.05)
    assert actual.dtype == torch.float32
    assert torch.equal(actual, expected)
    assert torch.equal(from_float32, expected)


def test_large_logits_stay_finite(bags):
    video, text, mask, ids = bags()
    video = (video.float() * 1e3).requires_grad_()
    loss = mil_nce(video, text.float() * 1e3, mask, ids, temperature=0.01)
    assert loss.isfinite()
    assert torch.autograd.grad(loss, video)[0].isfinite().all()
