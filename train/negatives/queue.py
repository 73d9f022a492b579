"""The last embeddings of earlier batches (as in He et al. 2020, "Momentum Contrast for Unsupervised Visual
Representation Learning", section 3.2, where they are keys)."""

from __future__ import annotations

from typing import Any

import torch

from train.losses import Beyond
from train.negatives.fresh import Fresh


class Ring:
    """The last `size` vectors that were pushed, with their videos' ids; a new one takes the oldest one's place."""

    def __init__(self, size: int, like_D: torch.Tensor) -> None:
        self._vector_QD = like_D.new_zeros(size, len(like_D))
        self._ids_Q = torch.zeros(size, dtype=torch.int64, device=like_D.device)
        self._pushed = 0

    def push(self, vector_ND: torch.Tensor, ids_N: torch.Tensor) -> None:
        """Of more than `size` the last ones stay."""
        size = len(self._ids_Q)
        kept = min(len(ids_N), size)
        self._pushed += len(ids_N)
        place_N = torch.arange(self._pushed - kept, self._pushed, device=ids_N.device) % size
        self._vector_QD[place_N] = vector_ND[len(ids_N) - kept :].to(self._vector_QD.dtype)
        self._ids_Q[place_N] = ids_N[len(ids_N) - kept :]

    def content(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(Q, D) vectors and int64 (Q,) ids of what was pushed, nothing else; views until the next push."""
        filled = min(self._pushed, len(self._ids_Q))
        return self._vector_QD[:filled], self._ids_Q[:filled]

    def state_dict(self) -> dict[str, Any]:
        return {"vectors": self._vector_QD, "ids": self._ids_Q, "pushed": self._pushed}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        self._vector_QD.copy_(content["vectors"])
        self._ids_Q.copy_(content["ids"])
        self._pushed = int(content["pushed"])


class Queue:
    """A ring of videos and a ring of captions, filled in the order of the global batch: the same at any world size.

    like_D: a vector of the dimension, precision and device of what is remembered. Every clip adds its video, every
    caption of its bag is an entry of its own, also where the loss samples one of them. Nothing is remembered at the
    start; then a loss has no further negatives.
    """

    def __init__(self, size: int, like_D: torch.Tensor) -> None:
        self._videos, self._texts = Ring(size, like_D), Ring(size, like_D)

    def draw(self, _step: int) -> Beyond:
        """Everything that is remembered, at any step."""
        return Beyond(*self._videos.content(), *self._texts.content())

    def push(self, fresh: Fresh) -> None:
        self._videos.push(fresh.video_ND, fresh.ids_N)
        mask_NK = fresh.mask_NK
        self._texts.push(fresh.text_NKD[mask_NK], fresh.ids_N[:, None].expand(mask_NK.shape)[mask_NK])

    def state_dict(self) -> dict[str, Any]:
        return {"videos": self._videos.state_dict(), "texts": self._texts.state_dict()}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        self._videos.load_state_dict(content["videos"])
        self._texts.load_state_dict(content["texts"])
