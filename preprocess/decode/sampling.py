"""Which frames make a row: named strategies over presentation time, the same in every backend.

A frame shown from `t` stands for every instant until the next frame is shown. Every strategy is a list of instants per row;
the frame taken is the one on screen at that instant.
"""

from __future__ import annotations

from typing import Literal

from shared.config import Config


class Sampling(Config):
    """strategy:
    fps        one row every 1/fps seconds: the frame on screen at k/fps, for the span [k/fps, (k+1)/fps)
    dense      clips of `frames` frames, 1/fps seconds apart, a new clip every `hop` seconds (default: the clip's length)
    uniform    `frames` single-frame rows per video, at the middle of `frames` equal parts of it
    keyframes  one row for every key frame of the stream: fast, approximate in time
    """

    strategy: Literal["fps", "dense", "uniform", "keyframes"] = "fps"
    fps: float = 1.0
    frames: int = 1
    hop: float | None = None
