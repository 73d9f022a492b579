"""What decoding may use and what it refuses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.config import Config

# Raised whenever the same file gives other frames or pixels, so that streams made before are made again.
RULES = 3


class DecodeOptions(Config):
    """Backend and limits of decoding one video; whatever exceeds a limit fails with `too_large` and is not decoded.

    backend: `auto` chooses for each video by its codec and its timestamps, the others are for tests and comparisons.
    keep_partial: keep what decodes of damaged files instead of failing them; `inspect` says of which videos rows are
        partial. Sets of the stream must be made again after a change (docs/failures.md).
    max_seconds: the longest video. max_frames: the most frames of a video. max_pixels: the largest width x height of a
        frame. max_bytes: the largest file.
    timeout_s: seconds for one video, enforced by whoever runs the decoding in a process that can be killed; the
        ffmpeg subprocess also limits its own CPU seconds to it, so that an orphan ends by itself.
    threads: decoder threads per video; 1, because many workers share a machine.
    block_bytes: upper bound of one block of frames; at least one frame is always in it.
    """

    backend: Literal["auto", "decord", "pyav", "ffmpeg"] = "auto"
    keep_partial: bool = False
    max_seconds: float = Field(default=12 * 3600.0, gt=0)
    max_frames: int = Field(default=2_600_000, gt=0)
    max_pixels: int = Field(default=8192 * 4352, gt=0)
    max_bytes: int = Field(default=64 * 2**30, gt=0)
    timeout_s: float = Field(default=3600.0, gt=0)
    threads: int = Field(default=1, ge=1, le=64)
    block_bytes: int = Field(default=8 * 2**20, gt=0, le=2**30)
