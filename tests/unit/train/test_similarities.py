from __future__ import annotations

import numpy as np
import pytest
import torch

from train import similarities as module
from train.embedded import EmbeddedSplit
from train.similarities import BINS, similarities


def test_against_a_double_loop(monkeypatch):
    torch.manual_seed(0)
    video_ND, text_MD = torch.randn(7, 4) * 3, torch.randn(6, 4)
    video_N = np.array([0, 0, 1, 1, 2, 3, 3], np.int32)
    # Text 1 belongs to two windows of its video; the last window has no text.
    text_P, window_P = torch.tensor([0, 1, 1, 2, 3, 4, 5]), torch.tensor([0, 2, 3, 1, 4, 5, 3])
    monkeypatch.setattr(module, "_ENTRIES", 14)
    found = similarities(EmbeddedSplit(video_ND, text_MD, text_P, window_P), video_N)
    cosine = torch.nn.functional.cosine_similarity(text_MD[:, None], video_ND[None], dim=2)
    own = dict(zip(text_P.tolist(), window_P.tolist(), strict=True))
    positive = [float(cosine[t, w]) for t, w in zip(text_P.tolist(), window_P.tolist(), strict=True)]
    negative = [float(cosine[t, w]) for t in range(6) for w in range(7) if video_N[w] != video_N[own[t]]]
    assert found.positive_H.tolist() == np.histogram(positive, BINS, (-1, 1))[0].tolist()
    assert found.negative_H.tolist() == np.histogram(negative, BINS, (-1, 1))[0].tolist()
    assert found.positive_mean == pytest.approx(np.mean(positive), abs=1e-6)
    assert found.negative_mean == pytest.approx(np.mean(negative), abs=1e-6)


def test_one_video_has_no_negatives_and_its_own_text_is_in_the_last_bin():
    one_ND = torch.tensor([[0.6, 0.8]])
    found = similarities(EmbeddedSplit(one_ND, one_ND, torch.tensor([0]), torch.tensor([0])), np.array([3]))
    assert found.negative_mean is None
    assert found.negative_H.sum() == 0
    assert found.positive_H[-1] == 1
