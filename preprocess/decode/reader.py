"""One video, open for reading: its facts, and blocks of the frames that some samplings need."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from preprocess.decode.grid import MIN_TOLERANCE, Grid, KeyGrid, grid_of
from preprocess.decode.image_backend import ImageSource
from preprocess.decode.media_probe import checked_path, probe_media
from preprocess.decode.media_source import MediaSource, first_and_end
from preprocess.decode.options import DecodeOptions
from preprocess.decode.sampling import Sampling
from preprocess.decode.sniff import sniff
from preprocess.decode.video import Frame, FrameBlock, VideoInfo, scaled_size

MAX_BLOCK_FRAMES = 64


class Source(Protocol):
    """What a VideoReader reads from. `info` is final once the frames have ended."""

    info: VideoInfo

    def frames(self) -> Generator[Frame]: ...


class VideoReader:
    """Iterate once over FrameBlock: the union of the frames that the samplings need, in order of showing.

    info: facts; duration, frames, backend and partial are final once the iteration has ended.
    grids: the instants of each sampling, in the order given, for ClipAssembler.
    Memory: a block (DecodeOptions.block_bytes, at least one frame) and a few frames whatever the length of the video,
    besides some 60 bytes for each of its frames.
    Leave it as a context manager, or exhaust it, so that the decoder is released.
    """

    def __init__(self, source: Source, grids: Sequence[Grid | KeyGrid], options: DecodeOptions) -> None:
        self.grids = list(grids)
        self._source, self._options = source, options
        self._frames = source.frames()

    @property
    def info(self) -> VideoInfo:
        return self._source.info

    def __enter__(self) -> VideoReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[FrameBlock]:
        """Raises DecodeFailure where the video is damaged and `keep_partial` is off, perhaps after yielding blocks."""
        block: list[Frame] = []
        for frame in self._frames:
            block.append(frame)
            full = (len(block) + 1) * frame.frame_HWC.nbytes > self._options.block_bytes
            if full or len(block) == MAX_BLOCK_FRAMES:
                yield _block(block)
                block = []
        if block:
            yield _block(block)

    def close(self) -> None:
        """Release the decoder; safe to call at any time."""
        self._frames.close()


def open_video(
    path: Path | str,
    samplings: Sequence[Sampling],
    options: DecodeOptions | None = None,
    short_side: int | None = None,
    strategies: Sequence[str] | None = None,
) -> VideoReader:
    """Open a video, or an image, for the frames that `samplings` need.

    short_side: pixels that the shorter side is scaled down to inside the decoder (never up), keeping the aspect ratio
    as `scaled_size` says. Frames are RGB by libswscale's rules: full range, matrix as the stream declares, else BT.601.
    strategies: what the choice of backend is made for; default those of `samplings`.
    Raises DecodeFailure (see `Reason`), EnvironmentLacking where there is no ffmpeg program.
    """
    options = options or DecodeOptions()
    absolute = checked_path(Path(path), options)
    if sniff(absolute).demuxer == "image":
        image = ImageSource(absolute, options, short_side)
        grids = [grid_of(one, 0.0, image.info.duration, MIN_TOLERANCE) for one in samplings]
        return VideoReader(image, grids, options)
    found = probe_media(absolute, options)
    strategies = [one.strategy for one in samplings] if strategies is None else strategies
    first, end = first_and_end(found, strategies, options)
    grids = [grid_of(one, first, end, found.tolerance) for one in samplings]
    size = scaled_size(found.info.width, found.info.height, short_side)
    return VideoReader(MediaSource(found, grids, strategies, size, options), grids, options)


def probe(path: Path | str, options: DecodeOptions | None = None) -> VideoInfo:
    """Facts of a video or image without decoding it; `frames` is None and `duration` an estimate if only that tells.

    Raises DecodeFailure, also for files known to be cut off unless `keep_partial`.
    """
    with open_video(path, (), options) as video:
        return video.info


def _block(frames: list[Frame]) -> FrameBlock:
    return FrameBlock(
        index_T=np.array([frame.index for frame in frames], dtype=np.int64),
        time_T=np.array([frame.time for frame in frames], dtype=np.float64),
        key_T=np.array([frame.key for frame in frames], dtype=np.bool_),
        frames_THWC=np.stack([frame.frame_HWC for frame in frames]),
    )
