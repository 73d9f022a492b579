"""`frames`: no model, the pixels themselves: thumbnails for reports, or whole clips for pre-training on pixels."""

from __future__ import annotations

import numpy as np
import PIL
import torch
from PIL import Image, ImageOps

from preprocess.extract.base import ExtractorSpec, check_clip
from preprocess.extract.pixels import crop_and_scale
from preprocess.extract.sections import FramesSection


class FramesExtractor:
    """uint8 pixels, scaled with PIL's bicubic filter (integer arithmetic, the same everywhere)."""

    def __init__(self, section: FramesSection, device: torch.device) -> None:
        del device  # there is nothing to compute
        self._fit = section.fit
        self._frames = section.sampling.clip_frames
        self._clips = section.sampling.strategy == "dense"
        self._height, self._width = (section.size, section.size) if isinstance(section.size, int) else section.size
        picture = (self._height, self._width, 3)
        self.spec = ExtractorSpec(
            kind="frames",
            row_shape=(self._frames, *picture) if self._clips else picture,
            dtype="uint8",
            sampling=section.sampling,
            batch_size=section.batch_size or 8,
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
        bicubic = Image.Resampling.BICUBIC
        if self._fit == "crop":
            return crop_and_scale(frame_HWC, self._height, self._width, bicubic)
        return np.asarray(ImageOps.pad(Image.fromarray(frame_HWC), (self._width, self._height), method=bicubic))
