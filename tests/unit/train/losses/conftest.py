"""Random bags for the loss tests, and the losses written as plain double loops."""

from __future__ import annotations

import math

import pytest
import torch


@pytest.fixture
def bags():
    """bags(clips, candidates, seed) -> float64 video_BD, text_BKD, ragged mask_BK, ids_B with one repeated video."""
    return draw_bags


def draw_bags(clips: int = 5, candidates: int = 3, seed: int = 0, dim: int = 4):
    draw = torch.Generator().manual_seed(seed)
    video = torch.randn(clips, dim, generator=draw, dtype=torch.float64)
    text = torch.randn(clips, candidates, dim, generator=draw, dtype=torch.float64)
    counts = torch.randint(1, candidates + 1, (clips,), generator=draw)
    mask = torch.arange(candidates) < counts[:, None]
    if clips > 2:
        mask[1] = False
    ids = torch.arange(clips) * 3
    ids[-1] = ids[0]
    return video, text, mask, ids


@pytest.fixture
def loops():
    """The sums of the formulas, one exponential at a time."""
    return LoopSums


class LoopSums:
    """own, video_to_text and text_to_video: per clip with a candidate, S_i and the two halves of N_i."""

    def __init__(self, video, text, mask, ids, temperature: float, mask_same_video: bool = True) -> None:
        clips, candidates = mask.shape
        self.own, self.video_to_text, self.text_to_video = [], [], []
        for i in range(clips):
            if not mask[i].any():
                continue
            own = [math.exp(float(video[i] @ text[i, k]) / temperature) for k in range(candidates) if mask[i, k]]
            out, back = 0.0, 0.0
            for j in range(clips):
                if j == i or (mask_same_video and ids[i] == ids[j]):
                    continue
                for k in range(candidates):
                    out += math.exp(float(video[i] @ text[j, k]) / temperature) if mask[j, k] else 0.0
                    back += math.exp(float(video[j] @ text[i, k]) / temperature) if mask[i, k] else 0.0
            self.own.append(sum(own))
            self.video_to_text.append(out)
            self.text_to_video.append(back)

    def mean(self, term) -> float:
        """Mean over the clips of term(S_i, video-to-text half, text-to-video half)."""
        values = [term(*sums) for sums in zip(self.own, self.video_to_text, self.text_to_video, strict=True)]
        return sum(values) / len(values)
