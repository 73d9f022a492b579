"""Pixels where no model's library says how: crop to a shape in whole pixels, then scale."""

from __future__ import annotations

import numpy as np
from PIL import Image


def crop_and_scale(frame_HWC: np.ndarray, height: int, width: int, resample: Image.Resampling) -> np.ndarray:
    """The largest centred part of `frame_HWC` that has the shape height : width, scaled to it. uint8 in and out.

    The crop is in whole pixels, so a frame that only needs cropping keeps its values; PIL's filters are integer
    arithmetic with antialiasing, the same on every machine.
    """
    own_height, own_width = frame_HWC.shape[:2]
    kept_height = min(own_height, max(1, round(own_width * height / width)))
    kept_width = min(own_width, max(1, round(own_height * width / height)))
    top, left = (own_height - kept_height) // 2, (own_width - kept_width) // 2
    cropped_HWC = frame_HWC[top : top + kept_height, left : left + kept_width]
    if (kept_height, kept_width) == (height, width):
        return cropped_HWC
    return np.asarray(Image.fromarray(cropped_HWC).resize((width, height), resample))
