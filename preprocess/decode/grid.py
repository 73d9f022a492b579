"""The instants of a sampling, and which frames they need.

Row r of a grid holds the instants  origin + r * hop + i * step,  i < length. The frame on screen at an instant t is the
last one with  time - tolerance <= t; an instant before the first frame shows the first. The tolerance is 0.51 ticks of
the stream's time base, at least 1 microsecond and at most 0.51 milliseconds: containers round the times of frames to
ticks, so the frame meant for 2/3 s may be stored at 0.667 s. Slightly more than half a tick, so that no comparison of
two rational times hangs on the last bit of a float.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from preprocess.decode.sampling import Sampling

MIN_TOLERANCE = 1e-6
MAX_TOLERANCE = 5.1e-4
MAX_TERMS = 256


def tolerance_of(time_base: Fraction) -> float:
    """Seconds by which a frame may be late and still count as on screen, for ticks of `time_base` seconds."""
    return min(max(0.51 * float(time_base), MIN_TOLERANCE), MAX_TOLERANCE)


class Needs(Protocol):
    """What a backend asks of a sampling. Frame 0 is always delivered: every video has a first row, which shows it."""

    def needs(self, shown: float, until: float, key: bool, /) -> bool:
        """Whether the frame on screen from `shown` until `until` (seconds) is in a row."""
        ...

    def select(self, gap: float, clock: str, /) -> str | None:
        """An ffmpeg expression, true at least for every needed frame; None selects all.

        gap: seconds from a frame to the next at most. clock: the expression for a frame's seconds on the file's clock.
        """
        ...


@dataclass(frozen=True)
class NoFrames:
    """Nothing but frame 0: for learning when frames are shown."""

    def needs(self, _shown: float, _until: float, _key: bool, /) -> bool:
        return False

    def select(self, _gap: float, _clock: str, /) -> str | None:
        return "eq(n,0)"


@dataclass(frozen=True)
class KeyGrid:
    """Every key frame of the stream."""

    def needs(self, _shown: float, _until: float, key: bool, /) -> bool:
        return key

    def select(self, _gap: float, _clock: str, /) -> str | None:
        return "eq(n,0)+key"


@dataclass(frozen=True)
class Grid:
    """Rows of instants, in seconds of the file's own clock.

    row_start: start of row 0's span; span: seconds that a row stands for.
    first: time of the first frame; first_row: the first row that exists, which always shows that frame.
    rows: end of the row numbers; None where the end of the video decides.
    """

    origin: float
    hop: float
    step: float
    length: int
    row_start: float
    span: float
    first: float
    first_row: int
    rows: int | None
    tolerance: float

    def instants(self, row: int) -> NDArray[np.float64]:
        """(length,) float64 seconds of one row."""
        return self._offsets() + row * self.hop

    def _offsets(self) -> NDArray[np.float64]:
        return self.origin + np.arange(self.length, dtype=np.float64) * self.step

    def bounds(self, row: int, end: float) -> tuple[float, float]:
        """[start, end) of one row in seconds, cut at the end of the video."""
        start = self.row_start + row * self.hop
        return start, min(start + self.span, end)

    def has_row(self, row: int, end: float) -> bool:
        """Whether the row begins before the end of the video; the first row always exists."""
        if row == self.first_row:
            return True
        if self.rows is not None:
            return row < self.rows
        return self.row_start + row * self.hop < end - self.tolerance

    def needs(self, shown: float, until: float, _key: bool, /) -> bool:
        if shown <= self.first:
            return True
        if self.length == 1:  # the same arithmetic without arrays: this runs for every frame of every video
            next_row = max(math.ceil((shown - self.tolerance - self.origin) / self.hop), self.first_row)
            on_screen = self.origin + next_row * self.hop < until - self.tolerance
            return on_screen and (self.rows is None or next_row < self.rows)
        offsets = self._offsets()
        row = np.maximum(np.ceil((shown - self.tolerance - offsets) / self.hop), self.first_row)
        hit = offsets + row * self.hop < until - self.tolerance
        if self.rows is not None:
            hit &= row < self.rows
        return bool(hit.any())

    def select(self, gap: float, clock: str, /) -> str | None:
        closest = self.hop if self.length == 1 else min(self.step, self.hop)
        if gap >= closest or self.length > MAX_TERMS:
            return None
        # Seconds from the frame to the next instant of each of the row's places; ffmpeg's mod() is never negative.
        ahead = (f"mod({late + self.tolerance:.9f}-{clock},{self.hop:.12f})" for late in self._offsets())
        return "+".join(["eq(n,0)", *(f"lt({one},{gap:.9f})" for one in ahead)])


def grid_of(sampling: Sampling, first: float, end: float, tolerance: float) -> Grid | KeyGrid:
    """The grid of one video. first: time of its first frame; end: its end in seconds, used by `uniform` alone."""
    if sampling.strategy == "keyframes":
        return KeyGrid()
    if sampling.strategy == "uniform":
        part = (end - first) / sampling.frames
        return Grid(
            origin=first + part / 2,
            hop=part,
            step=0.0,
            length=1,
            row_start=first,
            span=part,
            first=first,
            first_row=0,
            rows=sampling.frames,
            tolerance=tolerance,
        )
    step = 1.0 / sampling.fps
    span = step * sampling.clip_frames
    hop = sampling.hop or span
    latest = math.floor((first + tolerance) / hop)
    return Grid(
        origin=0.0,
        hop=hop,
        step=step,
        length=sampling.clip_frames,
        row_start=0.0,
        span=span,
        first=first,
        first_row=max(0, min(math.floor((first + tolerance - span) / hop) + 1, latest)),
        rows=None,
        tolerance=tolerance,
    )
