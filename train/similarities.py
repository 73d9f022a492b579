"""How similar captions are to their own windows, and to those of other videos: histograms of a split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from train.embedded import EmbeddedSplit

BINS = 40
_ENTRIES = 1 << 24


@dataclass(frozen=True, eq=False)
class Similarities:
    """Cosines in `BINS` equal bins over [-1, 1]. positive_H, negative_H: int64 counts. Means over all pairs, None
    where there is none."""

    positive_H: np.ndarray
    negative_H: np.ndarray
    positive_mean: float
    negative_mean: float | None


def similarities(embedded: EmbeddedSplit, video_N: np.ndarray) -> Similarities:
    """Positives are the pairs of a text and its windows, negatives a text and every window of another video.

    video_N: int, the video of each window. Other windows of a text's own video are neither, as in training. Cosines
    also for a model that does not normalise, so that runs can be laid over each other. A block of texts at a time.
    """
    text_MD, video_ND = F.normalize(embedded.text_MD, dim=1), F.normalize(embedded.video_ND, dim=1)
    of_window_N = torch.from_numpy(video_N.astype(np.int64)).to(video_ND.device)
    of_text_M = torch.empty(len(text_MD), dtype=torch.int64, device=video_ND.device)
    of_text_M[embedded.text_P] = of_window_N[embedded.window_P]
    positive_P = (text_MD[embedded.text_P] * video_ND[embedded.window_P]).sum(dim=1)
    negative_H, total, count = np.zeros(BINS, np.int64), 0.0, 0
    rows = max(1, _ENTRIES // len(video_ND))
    for first in range(0, len(text_MD), rows):
        block = slice(first, first + rows)
        apart_BN = of_text_M[block, None] != of_window_N
        negative_P = (text_MD[block] @ video_ND.T)[apart_BN]
        negative_H += _histogram(negative_P)
        total, count = total + float(negative_P.double().sum()), count + len(negative_P)
    mean = total / count if count else None
    return Similarities(_histogram(positive_P), negative_H, float(positive_P.double().mean()), mean)


def _histogram(cosine_P: torch.Tensor) -> np.ndarray:
    # Rounding may carry a cosine beyond 1, which belongs into the last bin.
    bin_P = ((cosine_P.clamp(-1, 1) + 1) * (BINS / 2)).long().clamp(max=BINS - 1)
    return torch.bincount(bin_P, minlength=BINS).cpu().numpy()
