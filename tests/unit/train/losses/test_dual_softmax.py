"""The dual softmax loss, one exponential at a time."""

from __future__ import annotations

import math

import pytest
import torch

from train.losses import dual_softmax, info_nce


def loop(video, text, mask, ids, temperature, prior, mask_same_video):
    clips, candidates = mask.shape
    pairs = {
        (i, j, k): float(video[i] @ text[j, k]) / temperature
        for i in range(clips)
        for j in range(clips)
        for k in range(candidates)
        if mask[j, k] and (i == j or not (mask_same_video and ids[i] == ids[j]))
    }
    by_text, by_clip = {}, {}
    for (i, j, k), s in pairs.items():
        same_text = sum(math.exp(x / prior) for (_, b, c), x in pairs.items() if (b, c) == (j, k))
        same_clip = sum(math.exp(x / prior) for (a, _, _), x in pairs.items() if a == i)
        by_text[i, j, k] = math.exp(s * math.exp(s / prior) / same_text)
        by_clip[i, j, k] = math.exp(s * math.exp(s / prior) / same_clip)
    terms = []
    for i in range(clips):
        if mask[i].any():
            out = sum(x for (a, _, _), x in by_text.items() if a == i)
            back = sum(x for (_, b, _), x in by_clip.items() if b == i)
            own = [sum(x for (a, b, _), x in side.items() if a == b == i) for side in (by_text, by_clip)]
            terms.append(-(math.log(own[0] / out) + math.log(own[1] / back)) / 2)
    return sum(terms) / len(terms)


@pytest.mark.parametrize("mask_same_video", [True, False])
@pytest.mark.parametrize("prior", [1.0, 4.0])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_double_loop(bags, seed, prior, mask_same_video):
    drawn = bags(seed=seed, clips=3 + seed)
    expected = loop(*drawn, 0.4, prior, mask_same_video)
    for tile in (0, 2):
        options = {"temperature": 0.4, "prior": prior, "mask_same_video": mask_same_video, "tile": tile}
        assert dual_softmax(*drawn, **options).item() == pytest.approx(expected, rel=1e-12)


def test_with_even_weights_it_is_info_nce_at_a_higher_temperature(bags):
    """A large prior gives every clip the weight 1/n, which divides all logits by n."""
    video, text, _, _ = bags(clips=6, candidates=1)
    mask, ids = torch.ones(6, 1, dtype=torch.bool), torch.arange(6)
    even = dual_softmax(video, text, mask, ids, temperature=0.1, prior=1e9)
    assert even.item() == pytest.approx(info_nce(video, text, mask, ids, temperature=0.6).item(), rel=1e-6)
