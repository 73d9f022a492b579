"""The windows of one split as arrays, read from CSV some at a time, or mapped from a cache of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice

import numpy as np

_ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class WindowTable:
    """The windows of one split, as arrays of length W.

    video_W: int32, number of the video in `ManifestSet.video_ids`. start_W, end_W: float64, seconds.
    first_row_W, rows_W: int64, rows of the stream relative to the video. bag_W: int32, captions in each bag.
    candidates: int64, set-wide caption numbers; window w has candidates[offsets[w]:offsets[w + 1]].
    """

    video_W: np.ndarray
    start_W: np.ndarray
    end_W: np.ndarray
    first_row_W: np.ndarray
    rows_W: np.ndarray
    bag_W: np.ndarray
    candidates: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.video_W)

    def candidates_of(self, window: int) -> np.ndarray:
        """int64 (K_w,): the captions in this window's bag, nearest first."""
        return self.candidates[self.offsets[window] : self.offsets[window + 1]]


def window_arrays(rows: Iterator[Sequence[str]], video_number: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The fields of a WindowTable of rows in the columns of `windows-<split>.csv`.

    Raises KeyError, ValueError for a row that is not one of a window.
    """
    parts = [_part([], video_number)]
    while chunk := list(islice(rows, _ROWS_AT_ONCE)):
        parts.append(_part(chunk, video_number))
    whole = {name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])}
    whole["offsets"] = np.concatenate([np.zeros(1, np.int64), np.cumsum(whole["bag_W"], dtype=np.int64)])
    assert set(whole) == {field.name for field in fields(WindowTable)}
    return whole


def _part(rows: list[Sequence[str]], video_number: Mapping[str, int]) -> dict[str, np.ndarray]:
    video, start, end, first_row, count, captions = zip(*rows, strict=True) if rows else ((),) * 6
    bags = [text.split() for text in captions]
    return {
        "video_W": np.array([video_number[video_id] for video_id in video], np.int32),
        "start_W": np.array(start, np.float64),
        "end_W": np.array(end, np.float64),
        "first_row_W": np.array(first_row, np.int64),
        "rows_W": np.array(count, np.int64),
        "bag_W": np.array([len(bag) for bag in bags], np.int32),
        "candidates": np.array([number for bag in bags for number in bag], np.int64),
    }
