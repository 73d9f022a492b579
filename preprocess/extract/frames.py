"""`frames`: no model, the pixels themselves: thumbnails for reports, or whole clips for pre-training on pixels."""

from __future__ import annotations

from typing import Literal

import numpy as np
import PIL
import torch
from PIL import Image, ImageOps
from pydantic import Field, PositiveInt

from preprocess.decode.sampling import Sampling
from preprocess.extract.base import ExtractorSpec, check_clip, frames_per_row
from shared.config import Config


class FramesSection(Config):
    """size: pixels of a row's picture, one number for a square or [height, width].

    fit: `crop` fills the size and cuts what stands over, evenly on both sides; `pad` keeps all and adds black.
    With `dense` sampling a row is a clip (T, H, W, 3), with every other strategy one picture (H, W, 3).
    """

    kind: Literal["frames"] = "frames"
    sampling: Sampling = Field(default_factory=Sampling)
    size: PositiveInt | tuple[PositiveInt, PositiveInt] = 224
    fit: Literal["crop", "pad"] = "crop"
    batch_size: PositiveInt = 8


class FramesExtractor:
    """uint8 pixels, scaled with PIL's bicubic filter (integer arithmetic, the same everywhere)."""

    def __init__(self, section: FramesSection, device: torch.device) -> None:
        del device  # there is nothing to compute
        self._fit = ImageOps.fit if section.fit == "crop" else ImageOps.pad
        self._frames = frames_per_row(section.sampling)
        self._clips = section.sampling.strategy == "dense"
        self._height, self._width = (section.size, section.size) if isinstance(section.size, int) else section.size
        picture = (self._height, self._width, 3)
        self.spec = ExtractorSpec(
            kind="frames",
            row_shape=(self._frames, *picture) if self._clips else picture,
            dtype="uint8",
            sampling=section.sampling,
            batch_size=section.batch_size,
            short_side=max(self._height, self._width),
            identity={
                "extractor": "frames",
                "revision": 1,
                "size": [self._height, self._width],
                "fit": section.fit,
                "filter": "bicubic",
                "short_side": max(self._height, self._width),
                "sampling": section.sampling.model_dump(mode="json"),
            },
            environment={"pillow": PIL.__version__},
        )

    def prepare(self, frames_THWC: np.ndarray) -> torch.Tensor:
        check_clip(frames_THWC, self._frames)
        pictures_THWC = np.stack([self._picture(frame_HWC) for frame_HWC in frames_THWC])
        return torch.from_numpy(pictures_THWC if self._clips else pictures_THWC[0])

    def compute(self, clips: torch.Tensor) -> np.ndarray:
        if clips.shape[0] != self.spec.batch_size:
            raise ValueError(
                f"compute takes exactly {self.spec.batch_size} clips, got {clips.shape[0]}; pad the last batch"
            )
        rows: np.ndarray = clips.numpy().copy()
        return rows

    def _picture(self, frame_HWC: np.ndarray) -> np.ndarray:
        size = (self._width, self._height)
        return np.asarray(self._fit(Image.fromarray(frame_HWC), size, method=Image.Resampling.BICUBIC))
