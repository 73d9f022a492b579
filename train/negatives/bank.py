"""A memory bank (Wu et al. 2018, "Unsupervised Feature Learning via Non-Parametric Instance Discrimination", sections
3.2 and 3.3): one entry for each video and one for its captions."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from train.losses import Beyond
from train.negatives.fresh import Fresh
from train.permutation import Permutation, mix_key

# Sets the draws apart from those of the order and of a loss, which have other keys under the same seed.
_DRAWS = 64


class Entries:
    """(V, D) vectors, and which of them were ever set."""

    def __init__(self, videos: int, like_D: torch.Tensor, momentum: float, normalise: bool) -> None:
        self._vector_VD = like_D.new_zeros(videos, len(like_D))
        self._seen_V = torch.zeros(videos, dtype=torch.bool, device=like_D.device)
        self._momentum, self._normalise = momentum, normalise

    def at(self, ids_M: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Vectors and ids of those of the given videos that were ever set."""
        known_Q = ids_M[self._seen_V[ids_M]]
        return self._vector_VD[known_Q], known_Q

    def mix_in(self, vector_ND: torch.Tensor, ids_N: torch.Tensor) -> None:
        """momentum x old + (1 - momentum) x new, or the new vector where there is no old one; of several of one video
        the last one counts."""
        ids_U, of_unique_N, times_U = torch.unique(ids_N, return_inverse=True, return_counts=True)
        last_U = of_unique_N.argsort(stable=True)[times_U.cumsum(0) - 1]
        new_UD, old_UD = vector_ND[last_U].to(self._vector_VD.dtype), self._vector_VD[ids_U]
        mixed_UD = torch.where(self._seen_V[ids_U, None], old_UD.lerp(new_UD, 1 - self._momentum), new_UD)
        self._vector_VD[ids_U] = F.normalize(mixed_UD, dim=-1) if self._normalise else mixed_UD
        self._seen_V[ids_U] = True

    def state_dict(self) -> dict[str, Any]:
        return {"vectors": self._vector_VD, "seen": self._seen_V}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        self._vector_VD.copy_(content["vectors"])
        self._seen_V.copy_(content["seen"])


class Bank:
    """videos: V, all ids are below. size: entries drawn for each step, without repetition; videos that were not seen
    yet are left out.

    A video's entry is of its clips' video embeddings; its text entry is of the mean of its latest bag. normalise: to
    length 1, as embeddings are. The draw is a pure function of seed and step, the content of the global batches.
    """

    def __init__(
        self, videos: int, like_D: torch.Tensor, *, size: int, momentum: float, normalise: bool, seed: int
    ) -> None:
        self._video = Entries(videos, like_D, momentum, normalise)
        self._text = Entries(videos, like_D, momentum, normalise)
        self._videos, self._size, self._seed = videos, min(size, videos), seed
        self._device = like_D.device

    def draw(self, step: int) -> Beyond:
        permutation = Permutation(self._videos, mix_key(self._seed, step, _DRAWS))
        ids_M = torch.from_numpy(permutation.take(0, self._size)).to(self._device)
        return Beyond(*self._video.at(ids_M), *self._text.at(ids_M))

    def push(self, fresh: Fresh) -> None:
        self._video.mix_in(fresh.video_ND, fresh.ids_N)
        captioned_N = fresh.mask_NK.any(dim=1)
        mask_NK1 = fresh.mask_NK[captioned_N].unsqueeze(-1)
        kept_NKD = fresh.text_NKD[captioned_N].where(mask_NK1, 0.0)
        self._text.mix_in(kept_NKD.sum(dim=1) / mask_NK1.sum(dim=1), fresh.ids_N[captioned_N])

    def state_dict(self) -> dict[str, Any]:
        return {"video": self._video.state_dict(), "text": self._text.state_dict()}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        self._video.load_state_dict(content["video"])
        self._text.load_state_dict(content["text"])
