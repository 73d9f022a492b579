"""What every extractor is: a few facts that the pipeline plans with, and two functions.

    frames uint8 (T, H, W, 3) --prepare--> tensor (one clip) --compute--> rows (B, *row_shape)

`prepare` is per clip and runs on the CPU; `compute` gets batches of exactly `batch_size` clips (the last one padded by
the caller), so that a row never depends on its neighbours or on how many workers there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch

from preprocess.decode.sampling import Sampling


@dataclass(frozen=True)
class ExtractorSpec:
    """Facts of one configured extractor.

    row_shape: shape of one row; (D,) for features, (H, W, 3) or (T, H, W, 3) for pixels.
    dtype: numpy name of the stored rows: float16, float32 or uint8.
    sampling: which frames make a row.
    batch_size: clips per call of `compute`, always exactly this many.
    short_side: pixels the decoder may scale the shorter side down to before `prepare` sees it; None keeps full size.
    identity: everything that decides the bytes of a row (architecture, weights' hash, preprocessing), for the fingerprint.
    """

    kind: Literal["features", "frames"]
    row_shape: tuple[int, ...]
    dtype: Literal["float16", "float32", "uint8"]
    sampling: Sampling
    batch_size: int
    short_side: int | None
    identity: dict[str, object]


class Extractor(Protocol):
    spec: ExtractorSpec

    def prepare(self, frames_THWC: np.ndarray) -> torch.Tensor:
        """One clip of uint8 RGB frames to the model's input."""
        ...

    def compute(self, clips: torch.Tensor) -> np.ndarray:
        """A batch of prepared clips (batch_size, ...) to rows (batch_size, *row_shape) of `spec.dtype`."""
        ...
