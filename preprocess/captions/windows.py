"""Training windows of one video: a span of it, the rows in that span, and the captions that may describe it.

caption  a window per caption, grown to a minimum length around the caption's centre; its candidates are the K captions
         whose centres are nearest, its own first (MIL-NCE, Miech et al. 2020, section 3.1)
fixed    windows of one length every `hop` seconds, with all captions that overlap them
video    the whole video, with all its captions

Bags are as large as they are: a video with fewer captions than K has fewer candidates, never the same one twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from preprocess.captions.types import Caption
from shared.config import Config


class WindowConfig(Config):
    """What a sample is. Seconds where nothing else is said.

    strategy: `caption` makes a window for each caption; `fixed` windows of one length, with all captions that overlap
    them; `video` one window, the whole video.
    min_seconds: `caption` windows are at least this long, within the video.
    candidates: K of `caption`: the captions whose centres are nearest, its own first.
    length: of `fixed` windows. hop: from one `fixed` window to the next; null means length, so that they follow each
    other.
    min_overlap: a caption belongs to a `fixed` window when they share this much, or all of the shorter of the two.
    max_candidates: of `fixed` and `video`: the captions whose centres are nearest to the window's; null means all.
    """

    strategy: Literal["caption", "fixed", "video"] = "caption"
    min_seconds: float = Field(default=5.0, ge=0, allow_inf_nan=False)
    candidates: int = Field(default=5, ge=1)
    length: float = Field(default=10.0, ge=0.05, allow_inf_nan=False)
    hop: float | None = Field(default=None, ge=0.05, allow_inf_nan=False)
    min_overlap: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    max_candidates: int | None = Field(default=None, ge=1)


class Window(NamedTuple):
    """start, end: seconds in the video. first_row, rows: relative to the video. candidates: numbers in its captions."""

    start: float
    end: float
    first_row: int
    rows: int
    candidates: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A window that was not made: `no_rows` or `no_captions`."""

    start: float
    end: float
    why: Literal["no_rows", "no_captions"]


@dataclass(frozen=True)
class Alignment:
    windows: tuple[Window, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True)
class _Times:
    """float64 (N,) each, seconds."""

    start_N: np.ndarray
    end_N: np.ndarray
    centre_N: np.ndarray


def align(captions: Sequence[Caption], row_spans: np.ndarray, duration: float, config: WindowConfig) -> Alignment:
    """Windows of one video.

    captions: cleaned, in any order. row_spans: float64 (rows, 2), [start, end) of each row in seconds, in row order.
    duration: seconds. Without captions there is nothing to learn and no window.
    """
    if not captions:
        return Alignment((), ())
    start_N, end_N = np.array([(c.start, c.end) for c in captions], np.float64).T
    times = _Times(start_N, end_N, (start_N + end_N) / 2)
    bounds_W2, bags = _STRATEGIES[config.strategy](times, duration, config)
    first_W, rows_W = rows_of(bounds_W2, row_spans)
    windows: list[Window] = []
    left_out: list[LeftOut] = []
    numbers = (bag.tolist() for bag in bags)
    for (start, end), first, rows, bag in zip(
        bounds_W2.tolist(), first_W.tolist(), rows_W.tolist(), numbers, strict=True
    ):
        if not bag:
            left_out.append(LeftOut(start, end, "no_captions"))
        elif not rows:
            left_out.append(LeftOut(start, end, "no_rows"))
        else:
            windows.append(Window(start, end, first, rows, tuple(bag)))
    return Alignment(tuple(windows), tuple(left_out))


def rows_of(bounds_W2: np.ndarray, row_spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First row and number of rows of each window, both int64 (W,).

    A row belongs to a window when its own centre lies in it. A window shorter than the rows' step may hold no centre:
    it then gets the one row that covers its centre, the one with the nearest centre if several do; none if none does.
    """
    centre_R = row_spans.mean(axis=1)
    if np.any(np.diff(centre_R) < 0):
        raise ValueError("row spans are not in the order of time; a store's rows always are")
    first_W = np.searchsorted(centre_R, bounds_W2[:, 0], side="left")
    rows_W = np.searchsorted(centre_R, bounds_W2[:, 1], side="left") - first_W
    for window in np.flatnonzero(rows_W <= 0):
        middle = bounds_W2[window].mean()
        covering = np.flatnonzero((row_spans[:, 0] <= middle) & (middle < row_spans[:, 1]))
        rows_W[window] = min(1, len(covering))
        if len(covering):
            first_W[window] = covering[np.argmin(np.abs(centre_R[covering] - middle))]
    return first_W.astype(np.int64), rows_W.astype(np.int64)


def _per_caption(times: _Times, duration: float, config: WindowConfig) -> tuple[np.ndarray, list[np.ndarray]]:
    length_N = np.minimum(np.maximum(times.end_N - times.start_N, config.min_seconds), duration)
    start_N = np.clip(times.centre_N - length_N / 2, 0.0, duration - length_N)
    # A caption that is long enough keeps its own borders, free of rounding.
    grown_N = times.end_N - times.start_N < config.min_seconds
    start_N = np.where(grown_N, start_N, times.start_N)
    end_N = np.where(grown_N, np.minimum(start_N + length_N, duration), times.end_N)
    return np.stack([start_N, end_N], axis=1), _nearest(times.centre_N, config.candidates)


def _nearest(centre_N: np.ndarray, count: int) -> list[np.ndarray]:
    """For each caption the `count` nearest by centre, itself first; of equally near ones its neighbours first.

    Among captions sorted by centre the nearest stand within `count` places on either side: no N x N matrix.
    """
    total = len(centre_N)
    order_N = np.argsort(centre_N, kind="stable")
    reach = min(count - 1, total - 1)
    # Itself, then its neighbours by their places: a stable sort by distance leaves equally near ones in this order.
    offset_C = np.array(sorted(range(-reach, reach + 1), key=lambda offset: (abs(offset), offset)))
    place_NC = np.arange(total)[:, None] + offset_C[None, :]
    inside_NC = (place_NC >= 0) & (place_NC < total)
    caption_NC = order_N[np.clip(place_NC, 0, total - 1)]
    distance_NC = np.abs(centre_N[caption_NC] - centre_N[order_N][:, None])
    distance_NC[~inside_NC] = np.inf
    # On one side at least, all places within reach are inside: there are always so many at a finite distance.
    ranked_NK = np.argsort(distance_NC, axis=1, kind="stable")[:, : reach + 1]
    bag_NK = np.empty((total, reach + 1), np.int64)
    bag_NK[order_N] = np.take_along_axis(caption_NC, ranked_NK, axis=1)
    return list(bag_NK)


def _fixed(times: _Times, duration: float, config: WindowConfig) -> tuple[np.ndarray, list[np.ndarray]]:
    """Full windows from zero on; where they do not reach the end, one more that ends with the video."""
    hop, length = config.hop or config.length, min(config.length, duration)
    count = int((duration - length) / hop) + 1
    starts = [number * hop for number in range(count)]
    if starts[-1] + length < duration:
        starts.append(duration - length)
    bounds_W2 = np.array([(start, min(start + length, duration)) for start in starts])
    order_N = np.argsort(times.start_N, kind="stable")
    # Only captions that start inside a window, or before it by less than the longest caption, can overlap it.
    longest = float((times.end_N - times.start_N).max())
    low_W = np.searchsorted(times.start_N[order_N], bounds_W2[:, 0] - longest, side="left")
    high_W = np.searchsorted(times.start_N[order_N], bounds_W2[:, 1], side="left")
    near = [order_N[low:high] for low, high in zip(low_W, high_W, strict=True)]
    return bounds_W2, [
        _overlapping(times, start, end, some, config) for (start, end), some in zip(bounds_W2, near, strict=True)
    ]


def _overlapping(times: _Times, start: float, end: float, some_M: np.ndarray, config: WindowConfig) -> np.ndarray:
    start_M, end_M = times.start_N[some_M], times.end_N[some_M]
    shared_M = np.minimum(end_M, end) - np.maximum(start_M, start)
    needed_M = np.minimum(np.minimum(end_M - start_M, end - start), config.min_overlap)
    # Times such as 0.1 + 0.2 make a shared span miss its own length by a rounding error.
    found = some_M[(shared_M > 0) & (shared_M >= needed_M - 1e-9)]
    return _limited(times, start, end, np.sort(found), config.max_candidates)


def _whole_video(times: _Times, duration: float, config: WindowConfig) -> tuple[np.ndarray, list[np.ndarray]]:
    bag = _limited(times, 0.0, duration, np.arange(len(times.start_N)), config.max_candidates)
    return np.array([(0.0, duration)]), [bag]


def _limited(times: _Times, start: float, end: float, bag: np.ndarray, most: int | None) -> np.ndarray:
    """At most `most` captions of the bag, those nearest to the window's centre, in the order of the track."""
    if most is None or len(bag) <= most:
        return bag
    distance = np.abs(times.centre_N[bag] - (start + end) / 2)
    return np.sort(bag[np.argsort(distance, kind="stable")[:most]])


_STRATEGIES = {"caption": _per_caption, "fixed": _fixed, "video": _whole_video}
