"""When rows are, and which row of a video is at a given time: for streams that are read beside each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shared.stream_index import StreamIndex

# Spans of irregular videos that are kept once they were read, and comparisons that are made at a time.
_REMEMBERED_BYTES = 1 << 26
_AT_ONCE = 1 << 20


class RowTimes:
    """The times of the rows of one stream. Rows are counted within their video, times are seconds of its clock.

    Those of a regular video are computed from four numbers of the index; an irregular one's spans are read once and
    remembered, up to 64 MiB of them.
    """

    def __init__(self, index: StreamIndex, spans: Callable[[int], np.ndarray]) -> None:
        """spans: of all rows of a video, float64 (rows, 2), [start, end) each."""
        self._index, self._read = index, spans
        # A step back in time is not what the formulas below are for; that of a single row does not count.
        self._regular_V = np.isfinite(index.length_V) & ((index.step_V > 0) | (index.rows_V == 1))
        self._step_V = np.where(index.step_V > 0, index.step_V, 1.0)
        self._remembered: dict[int, np.ndarray] = {}
        self._bytes = 0

    def middles(self, video_N: np.ndarray, row_N: np.ndarray) -> np.ndarray:
        """float64 (N,): the middle of the span of each row. Raises DamageFound for spans that cannot be read."""
        index = self._index
        start_N = index.start_V[video_N] + row_N * self._step_V[video_N]
        middle_N: np.ndarray = (start_N + np.minimum(start_N + index.length_V[video_N], index.end_V[video_N])) / 2
        for video, at in self._irregular(video_N):
            middle_N[at] = self._spans(video)[row_N[at]].mean(axis=1)
        return middle_N

    def rows_at(self, video_N: np.ndarray, time_N: np.ndarray) -> np.ndarray:
        """int64 (N,): the row of each video whose span [start, end) holds the time, else the one that is nearest to it.

        Of several that hold it, or that are equally near, the one whose middle is nearest; of equals again the first,
        where they have not all one and the same span. Raises DamageFound for spans that cannot be read.
        """
        row_N = np.zeros(len(video_N), np.int64)
        regular_N = self._regular_V[video_N]
        if regular_N.all():
            return self._regular_rows(video_N, time_N)
        row_N[regular_N] = self._regular_rows(video_N[regular_N], time_N[regular_N])
        for video, at in self._irregular(video_N):
            row_N[at] = _search(self._spans(video), time_N[at])
        return row_N

    def _regular_rows(self, video_N: np.ndarray, time_N: np.ndarray) -> np.ndarray:
        """Row k is [start + k step, min(start + k step + length, end)): whole rows first, then those cut at the end.

        Whole ones have equal lengths, so the best of them is one of the two whose middles are about the time. Of cut
        ones the middles are half a step apart, and only those that begin before the time can hold it.
        """
        index = self._index
        start_N, step_N = index.start_V[video_N], self._step_V[video_N]
        length_N, end_N, last_N = index.length_V[video_N], index.end_V[video_N], index.rows_V[video_N] - 1
        whole_N = np.clip(np.floor((end_N - length_N - start_N) / step_N) + 1, 0, last_N)
        since_N = time_N - start_N
        place_3N = np.floor(np.stack([since_N - length_N / 2, since_N - (end_N - time_N), since_N]) / step_N)
        low_3N, high_3N = np.stack([0 * whole_N, whole_N, whole_N]), np.stack([whole_N, last_N, last_N])
        row_CN = np.concatenate([np.clip(place_3N, low_3N, high_3N), np.clip(place_3N + 1, low_3N, high_3N)])
        begin_CN = start_N + row_CN * step_N
        return _best(row_CN.astype(np.int64), begin_CN, np.minimum(begin_CN + length_N, end_N), time_N)

    def _irregular(self, video_N: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Each irregular video, and where it stands."""
        at_N = np.flatnonzero(~self._regular_V[video_N])
        at_N = at_N[np.argsort(video_N[at_N], kind="stable")]
        videos, begins = np.unique(video_N[at_N], return_index=True)
        return list(zip(videos.tolist(), np.split(at_N, begins[1:]), strict=False))

    def _spans(self, video: int) -> np.ndarray:
        found = self._remembered.get(video)
        if found is None:
            found = self._read(video)
            # Two threads that come at once may count a video twice: the limit is then reached a little earlier.
            if self._bytes + found.nbytes > _REMEMBERED_BYTES:
                self._remembered, self._bytes = {}, 0
            self._remembered[video] = found
            self._bytes += found.nbytes
        return found


def _search(spans_R2: np.ndarray, time_N: np.ndarray) -> np.ndarray:
    """The row of one video at each time, as `RowTimes.rows_at` says."""
    begin_R, end_R = spans_R2.T
    if (np.diff(begin_R) >= 0).all() and (np.diff(end_R) >= 0).all():
        return _search_ordered(begin_R, end_R, time_N)
    row_N = np.empty(len(time_N), np.int64)
    count = max(1, _AT_ONCE // len(spans_R2))
    every_R1 = np.arange(len(spans_R2))[:, None]
    for first in range(0, len(time_N), count):
        part = slice(first, first + count)
        row_N[part] = _best(every_R1, begin_R[:, None], end_R[:, None], time_N[part])
    return row_N


def _search_ordered(begin_R: np.ndarray, end_R: np.ndarray, time_N: np.ndarray) -> np.ndarray:
    """Where rows neither begin nor end before the ones in front of them, those that hold a time follow each other."""
    first_N = np.searchsorted(end_R, time_N, side="right")
    behind_N = np.searchsorted(begin_R, time_N, side="right")
    middle_R = (begin_R + end_R) / 2
    near_N = np.searchsorted(middle_R, time_N)
    # The first of several with the middle that comes before.
    below_N = np.searchsorted(middle_R, middle_R[np.maximum(near_N - 1, 0)])
    held_2N = np.clip(np.stack([below_N, near_N]), first_N, np.maximum(behind_N - 1, first_N))
    row_CN = np.clip(np.concatenate([held_2N, np.stack([behind_N - 1, first_N])]), 0, len(begin_R) - 1)
    return _best(row_CN, begin_R[row_CN], end_R[row_CN], time_N)


def _best(row_CN: np.ndarray, begin_CN: np.ndarray, end_CN: np.ndarray, time_N: np.ndarray) -> np.ndarray:
    """The best of C rows for each time."""
    away_CN = np.maximum(begin_CN - time_N, time_N - end_CN)
    # Less than any distance; a row that ends at the time does not hold it.
    away_CN = np.where((begin_CN <= time_N) & (time_N < end_CN), -1.0, np.maximum(away_CN, 0.0))
    off_CN = np.where(away_CN == away_CN.min(axis=0), np.abs((begin_CN + end_CN) / 2 - time_N), np.inf)
    best_N: np.ndarray = np.where(off_CN == off_CN.min(axis=0), row_CN, np.iinfo(np.int64).max).min(axis=0)
    return best_N
