"""What a step hands to a memory, and what a memory is."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch

from train.losses import Beyond


class Fresh(NamedTuple):
    """Embeddings of a global batch in rank order, without gradient; the same on all ranks.

    video_ND, text_NKD: floating, any values in empty slots. mask_NK: bool. ids_N: int64, the clips' videos.
    """

    video_ND: torch.Tensor
    text_NKD: torch.Tensor
    mask_NK: torch.Tensor
    ids_N: torch.Tensor


class Memory(Protocol):
    """Embeddings of earlier batches. Its state depends on the global batches alone, not on the number of ranks."""

    def draw(self, step: int, /) -> Beyond:
        """The negatives of global batch number `step`, good until the next push."""
        ...

    def push(self, fresh: Fresh) -> None:
        """Remember a batch, after the step that was taken on it."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, content: dict[str, Any]) -> None: ...
