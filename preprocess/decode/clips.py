"""From one stream of frames to the rows of any number of samplings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from preprocess.decode.grid import Grid, KeyGrid
from preprocess.decode.reader import VideoReader
from preprocess.decode.video import FrameBlock


@dataclass(frozen=True)
class Clip:
    """One row's frames.

    frames_THWC: uint8 RGB (T, H, W, 3), T the sampling's `clip_frames`.
    start, end: seconds of the file's own clock that the row stands for, [start, end).
    valid: how many of the T frames lie before the end of the video; the rest repeat frame `valid - 1`.
    time_T: float64 seconds at which each frame was shown first; index_T: int64 its number in display order.
    """

    frames_THWC: NDArray[np.uint8]
    start: float
    end: float
    valid: int
    time_T: NDArray[np.float64]
    index_T: NDArray[np.int64]


@dataclass(frozen=True)
class _Held:
    index: int
    time: float
    frame_HWC: NDArray[np.uint8]


class ClipAssembler:
    """Rows of one sampling, fed with blocks that hold at least the frames it needs.

    for block in video: yield from assembler.push(block);  then  yield from assembler.finish(video.info.duration)
    Holds no more frames than one row spans.
    """

    def __init__(self, grid: Grid | KeyGrid) -> None:
        self._rows: _GridRows | _KeyRows = _KeyRows() if isinstance(grid, KeyGrid) else _GridRows(grid)

    def push(self, block: FrameBlock) -> Iterator[Clip]:
        """The rows that are complete once these frames are known."""
        frames = zip(block.index_T, block.time_T, block.key_T, block.frames_THWC, strict=True)
        for index, time, key, frame_HWC in frames:
            yield from self._rows.push(_Held(int(index), float(time), frame_HWC), bool(key))

    def finish(self, end: float) -> Iterator[Clip]:
        """The rows that only the end of the video (seconds) completes."""
        yield from self._rows.finish(end)


class _GridRows:
    """Rows of a grid. Invariant: `held` are the frames that rows from `row` on may show, in order of time."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.row = grid.first_row
        self.held: list[_Held] = []

    def push(self, frame: _Held, key: bool) -> Iterator[Clip]:
        grid = self.grid
        if self.held and not grid.needs(self.held[-1].time, frame.time, key):
            self.held.pop()
        while self.held and (grid.rows is None or self.row < grid.rows):
            # A row's end is cut at the video's end, so it is complete only once a frame is shown at or after its end.
            instants_T = grid.instants(self.row)
            if frame.time - grid.tolerance <= max(
                instants_T[-1], grid.bounds(self.row, np.inf)[1] - 2 * grid.tolerance
            ):
                break
            yield self._clip(instants_T, end=np.inf)
        # A view would keep its whole block alive for as long as the row waits.
        self.held.append(_Held(frame.index, frame.time, frame.frame_HWC.copy()))

    def finish(self, end: float) -> Iterator[Clip]:
        while self.held and self.grid.has_row(self.row, end):
            yield self._clip(self.grid.instants(self.row), end)

    def _clip(self, instants_T: NDArray[np.float64], end: float) -> Clip:
        grid = self.grid
        shown_N = np.array([frame.time for frame in self.held]) - grid.tolerance
        valid = max(1, int(np.searchsorted(instants_T, end - grid.tolerance, side="left")))
        which_T = np.maximum(np.searchsorted(shown_N, instants_T, side="right") - 1, 0)
        which_T[valid:] = which_T[valid - 1]
        clip = _assemble([self.held[which] for which in which_T], *grid.bounds(self.row, end), valid)
        self.row += 1
        self._forget()
        return clip

    def _forget(self) -> None:
        """Drop the frames that were off screen before the next row begins."""
        begins = self.grid.instants(self.row)[0]
        while len(self.held) > 1 and self.held[1].time - self.grid.tolerance <= begins:
            self.held.pop(0)


class _KeyRows:
    """One row from each key frame until the next."""

    def __init__(self) -> None:
        self.waiting: _Held | None = None

    def push(self, frame: _Held, key: bool) -> Iterator[Clip]:
        if not key:
            return
        if self.waiting is not None:
            yield _assemble([self.waiting], self.waiting.time, frame.time, 1)
        self.waiting = _Held(frame.index, frame.time, frame.frame_HWC.copy())

    def finish(self, end: float) -> Iterator[Clip]:
        if self.waiting is not None:
            yield _assemble([self.waiting], self.waiting.time, end, 1)


def _assemble(frames: list[_Held], start: float, end: float, valid: int) -> Clip:
    return Clip(
        frames_THWC=np.stack([frame.frame_HWC for frame in frames]),
        start=start,
        end=end,
        valid=valid,
        time_T=np.array([frame.time for frame in frames]),
        index_T=np.array([frame.index for frame in frames], dtype=np.int64),
    )


def iterate_clips(video: VideoReader) -> Iterator[tuple[int, Clip]]:
    """(number of the sampling, row) for all samplings of an open video, each sampling's rows in order of time.

    Raises DecodeFailure as iterating the video does.
    """
    assemblers = [ClipAssembler(grid) for grid in video.grids]
    for block in video:
        for number, assembler in enumerate(assemblers):
            for clip in assembler.push(block):
                yield number, clip
    for number, assembler in enumerate(assemblers):
        for clip in assembler.finish(video.info.duration):
            yield number, clip
