"""InfoNCE against a double loop and, for one candidate a clip, against cross-entropy."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from train.losses import info_nce


@pytest.mark.parametrize("mask_same_video", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_equals_the_double_loop(bags, loops, seed, mask_same_video):
    video, text, mask, ids = bags(seed=seed, clips=3 + seed)
    sums = loops(video, text, mask, ids, 0.4, mask_same_video)
    expected = sums.mean(lambda own, out, back: -(math.log(own / (own + out)) + math.log(own / (own + back))) / 2)
    actual = info_nce(video, text, mask, ids, temperature=0.4, mask_same_video=mask_same_video)
    assert actual.item() == pytest.approx(expected, rel=1e-12)


def test_one_candidate_is_the_mean_of_two_cross_entropies(bags):
    video, text, _, _ = bags(clips=6, candidates=1)
    logits, target = video @ text[:, 0].T / 0.2, torch.arange(6)
    expected = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
    actual = info_nce(video, text, torch.ones(6, 1, dtype=torch.bool), target, temperature=0.2)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
