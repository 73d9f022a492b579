"""The sigmoid loss against a double loop, and against the paper's own lines for one text a clip."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from train.losses import sigmoid


@pytest.mark.parametrize("mask_same_video", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_equals_the_double_loop(bags, seed, mask_same_video):
    video, text, mask, ids = bags(seed=seed, clips=3 + seed)
    clips, candidates = mask.shape
    total = 0.0
    for i in range(clips):
        for j in range(clips):
            if i != j and mask_same_video and ids[i] == ids[j]:
                continue
            for k in range(candidates):
                if mask[j, k]:
                    sign = 1 if i == j else -1
                    total += math.log1p(math.exp(-sign * (float(video[i] @ text[j, k]) / 0.4 - 1.5)))
    expected = total / int(mask.any(dim=1).sum())
    for tile in (0, 2):
        actual = sigmoid(video, text, mask, ids, temperature=0.4, bias=-1.5, mask_same_video=mask_same_video, tile=tile)
        assert actual.item() == pytest.approx(expected, rel=1e-12)


def test_one_text_a_clip_is_the_algorithm_of_the_paper(bags):
    video, text, _, _ = bags(clips=6, candidates=1)
    labels = 2 * torch.eye(6, dtype=torch.float64) - 1
    expected = -F.logsigmoid(labels * (video @ text[:, 0].T / 0.1 - 10)).sum() / 6
    ids, mask = torch.arange(6), torch.ones(6, 1, dtype=torch.bool)
    actual = sigmoid(video, text, mask, ids, temperature=0.1, bias=-10.0)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
