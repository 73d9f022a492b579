"""What every extractor is: a few facts that the pipeline plans with, and two functions.

    frames uint8 (T, H, W, 3) --prepare--> tensor (one clip) --compute--> rows (B, *row_shape)

`prepare` is per clip and runs on the CPU; `compute` gets batches of exactly `batch_size` clips (the last one padded by
the caller), so that a row never depends on its neighbours or on how many workers there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
    identity: everything that decides the bytes of a row (architecture, weights' hash, preprocessing), for the
        fingerprint. Holds JSON values only, and no paths: moving a file of weights changes nothing.
    environment: what may move the last bits of a row and is recorded beside it, outside the fingerprint: the
        versions of the libraries and the kind of device.
    """

    kind: Literal["features", "frames"]
    row_shape: tuple[int, ...]
    dtype: Literal["float16", "float32", "uint8"]
    sampling: Sampling
    batch_size: int
    short_side: int | None
    identity: dict[str, object]
    environment: dict[str, str] = field(default_factory=dict)


class Extractor(Protocol):
    @property
    def spec(self) -> ExtractorSpec:
        """The same for the whole life of the extractor."""
        ...

    def prepare(self, frames_THWC: np.ndarray) -> torch.Tensor:
        """One clip of uint8 RGB frames (T, H, W, 3) to the model's input, of one shape for all clips.

        Pure, and safe to call from several threads at once. Raises ValueError for anything that is not such a clip.
        """
        ...

    def compute(self, clips: torch.Tensor) -> np.ndarray:
        """A batch of prepared clips (batch_size, ...) to rows (batch_size, *row_shape) of `spec.dtype`.

        Raises ValueError for another batch size, torch.OutOfMemoryError where the device is too small for this one.
        """
        ...


def check_clip(frames_THWC: np.ndarray, frames: int) -> None:
    """Raises ValueError unless these are `frames` uint8 RGB frames (T, H, W, 3): the caller's bug, not a bad sample."""
    if frames_THWC.dtype != np.uint8 or frames_THWC.ndim != 4 or frames_THWC.shape[3] != 3:
        raise ValueError(f"a clip is uint8 (T, H, W, 3), got {frames_THWC.dtype} {frames_THWC.shape}")
    if frames_THWC.shape[0] != frames:
        raise ValueError(f"this extractor takes {frames} frames a row, got a clip of {frames_THWC.shape[0]}")
