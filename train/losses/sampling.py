"""One candidate of each bag, drawn by a keyed hash: the same on every rank, and again after a resume."""

from __future__ import annotations

import numpy as np
import torch

from train.permutation import keyed_hash, mix_key


def sample_candidate(mask_NK: torch.Tensor, seed: int, step: int) -> torch.Tensor:
    """(N, K) bool with one True in each row of `mask_NK` that has any; equally likely, anew for each step.

    A pure function of seed, step, a clip's number in the global batch and its candidates: the same at any world size.
    """
    hashes_N = keyed_hash(np.arange(len(mask_NK)), mix_key(seed, step)) >> np.uint64(11)
    drawn_N = torch.from_numpy(hashes_N.astype(np.float64) / 2**53).to(mask_NK.device)
    rank_NK = mask_NK.cumsum(dim=1) - 1
    chosen_N = (drawn_N * mask_NK.sum(dim=1)).long()
    return mask_NK & (rank_NK == chosen_N.unsqueeze(1))
