"""What decoding hands on: facts of a video, blocks of frames, and the typed way to fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from shared.errors import Failure

Reason = Literal[
    "missing_file",  # not there, not a regular file, or not readable
    "empty_file",  # 0 bytes
    "not_a_media_file",  # text, a playlist, an unknown format
    "no_video_stream",  # media without a picture
    "unsupported_codec",  # no decoder for it
    "corrupt",  # damaged: some or all of it cannot be decoded
    "truncated",  # cut off: the file ends before what it announces
    "too_large",  # over a limit of DecodeOptions
    "timeout",  # over DecodeOptions.timeout_s; recorded by the caller that killed the process
]


class DecodeFailure(Exception):
    """A video that yields nothing; `failure` is the value to record. Never shown as a traceback."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason: Reason = reason
        self.failure = Failure(reason=reason, stage="decode", message=message)

    def __reduce__(self) -> tuple[type[DecodeFailure], tuple[Reason, str]]:
        return type(self), (self.reason, self.failure.message)


def fail(reason: Reason, message: str) -> NoReturn:
    """Raise DecodeFailure."""
    raise DecodeFailure(reason, message)


@dataclass(frozen=True)
class VideoInfo:
    """Facts of one video. Times are seconds of the file's own clock: the container's start is 0.

    width, height: pixels as shown after rotation, before any scaling; the pixel aspect ratio is not applied.
    duration: end of the video: the last frame's time plus its duration. An estimate until a VideoReader is exhausted.
    frames: frames shown; None while unknown.
    codec, container: names of libavcodec and libavformat (`h264`, `mov`); images are `image`.
    backend: what decoded it: `decord`, `pyav`, `ffmpeg`, `pillow`, or `decord+ffmpeg` where the second took over.
    start: seconds from the container's start to the start of the video stream.
    stream: index of the chosen stream: the first video stream that is not a cover picture.
    rotation: degrees clockwise that the picture is turned for showing.
    partial: the file is damaged and only part of it was decoded (`keep_partial`).
    why: why the backend was chosen, or what is partial; one line for people.
    """

    width: int
    height: int
    duration: float
    frames: int | None
    codec: str
    container: str
    backend: str
    start: float
    stream: int
    rotation: int = 0
    partial: bool = False
    why: str = ""


@dataclass(frozen=True)
class Frame:
    """One shown frame as a backend delivers it: number in display order, seconds, key frame or not, RGB pixels."""

    index: int
    time: float
    key: bool
    frame_HWC: NDArray[np.uint8]


@dataclass(frozen=True)
class FrameBlock:
    """Consecutive frames of those asked for, in strictly increasing time.

    index_T: int64, number of the shown frame in display order, from 0.
    time_T: float64, seconds of the file's own clock.
    key_T: bool, whether the frame is a key frame of the stream (frame 0 always counts as one).
    frames_THWC: uint8 RGB, all of one size.
    """

    index_T: NDArray[np.int64]
    time_T: NDArray[np.float64]
    key_T: NDArray[np.bool_]
    frames_THWC: NDArray[np.uint8]


def scaled_size(width: int, height: int, short_side: int | None) -> tuple[int, int]:
    """(width, height) after scaling the shorter side down to `short_side`; never up.

    The longer side is rounded to the nearest pixel, halves up; odd sizes are kept, RGB has no need of even ones.
    """
    short = min(width, height)
    if short_side is None or short <= short_side:
        return width, height
    scaled_width, scaled_height = (max(1, (2 * side * short_side + short) // (2 * short)) for side in (width, height))
    return scaled_width, scaled_height
