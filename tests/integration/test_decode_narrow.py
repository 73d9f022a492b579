"""Narrow frames: decord takes the padding of their lines for more channels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from preprocess.decode import DecodeOptions, Sampling, open_video


@pytest.mark.parametrize("short_side", [3, 6, 9, 12, 18, 20, 36, 48])
def test_narrow_frames_are_those_of_ffmpeg(draw_video: Callable[..., None], tmp_path: Path, short_side: int) -> None:
    draw_video(tmp_path / "a.mp4")  # 64 x 48
    frames = {}
    for backend in ("decord", "ffmpeg"):
        options = DecodeOptions.model_validate({"backend": backend})
        with open_video(tmp_path / "a.mp4", [Sampling()], options, short_side) as video:
            frames[backend] = np.concatenate([block.frames_THWC for block in video]).astype(int)
            assert video.info.backend == backend
    assert frames["decord"].shape == (2, short_side, round(short_side * 64 / 48), 3)
    assert np.abs(frames["decord"] - frames["ffmpeg"]).mean() < 4
