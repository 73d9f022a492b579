"""Which frames make a row: named strategies over presentation time, the same in every backend.

A frame shown from `t` stands for every instant until the next frame is shown. Every strategy is a list of instants per
row; the frame taken is the one on screen at that instant (`preprocess/decode/grid.py` has the arithmetic).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from shared.config import Config


class Sampling(Config):
    """Which frames make a row, by one of four strategies:

    `fps` makes one row every 1/fps seconds: the frame on screen at k/fps, for the span [k/fps, (k+1)/fps);

    `dense` makes clips of `frames` frames, 1/fps seconds apart, a new clip every `hop` seconds;

    `uniform` makes `frames` single-frame rows per video, at the middle of `frames` equal parts of it;

    `keyframes` makes one row for every key frame of the stream: fast, approximate in time (the encoder chose them).

    strategy: one of these; a setting that it does not use is refused.
    fps: rows, or frames of a clip, in a second. frames: of a clip, or (`uniform`) of a video.
    hop: seconds from the start of a clip to that of the next; null is the clip's length.

    Every row that begins before the end of the video exists; its end is cut at the end of the video. A clip that
    reaches past the end repeats its last frame and says how many are valid. Instants before the first frame show it.
    """

    strategy: Literal["fps", "dense", "uniform", "keyframes"] = "fps"
    fps: float = Field(default=1.0, gt=0, le=1000, allow_inf_nan=False)
    frames: int = Field(default=1, ge=1, le=100_000)
    hop: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _only_what_is_used(self) -> Sampling:
        unused = {
            "fps": ("frames", "hop"),
            "dense": (),
            "uniform": ("fps", "hop"),
            "keyframes": ("fps", "frames", "hop"),
        }[self.strategy]
        for name in unused:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"strategy {self.strategy} does not use {name}={getattr(self, name)}; remove it, "
                    "or choose strategy dense, which takes fps, frames and hop"
                )
        return self

    @property
    def clip_frames(self) -> int:
        """Frames in one row: `frames` for dense clips, else 1."""
        return self.frames if self.strategy == "dense" else 1
