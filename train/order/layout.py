"""The windows of a split, video after video."""

from __future__ import annotations

import numpy as np


class VideoLayout:
    """Places 0 .. W-1 in a sequence in which the windows of a video stand together.

    first_V, count_V: int64, the place of each video's first window, and how many it has.
    """

    def __init__(self, video_W: np.ndarray) -> None:
        """video_W: the video of each window, any integers."""
        # A set that clipmill wrote has its windows video after video: then nothing is held for each of millions.
        in_order = bool((video_W[1:] >= video_W[:-1]).all())
        self._window_of = None if in_order else np.argsort(video_W, kind="stable")
        self.size = len(video_W)
        self.first_V, self.count_V = runs(video_W if self._window_of is None else video_W[self._window_of])

    def windows(self, place_N: np.ndarray) -> np.ndarray:
        """int64 (N,): window numbers of places."""
        return place_N if self._window_of is None else self._window_of[place_N]


def runs(value_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64: where each run of equal values begins, and how long it is."""
    begins_N = np.ones(len(value_N), bool)
    begins_N[1:] = value_N[1:] != value_N[:-1]
    first_R = np.flatnonzero(begins_N)
    return first_R, np.diff(first_R, append=len(value_N))
