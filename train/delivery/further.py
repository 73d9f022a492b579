"""Further streams of the same videos, read at the times of a window's rows; their channels stand behind the first's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shared.errors import RequestError, StoreError
from shared.features import StreamReader
from shared.fingerprint import hash_bytes
from train.delivery.config import DataConfig

# Videos without rows that a message names.
_SHOWN = 3


class FurtherStreams:
    """The streams that `data.also` names, beside the one that the windows were cut for.

    For each row of a window, a further stream gives the row that holds the middle of its span, or else is nearest to it
    (`RowTimes.rows_at`). dims: channels of each stream, the first one's in front. dtype: the widest of theirs.
    """

    def __init__(
        self,
        first: StreamReader,
        config: DataConfig,
        video_ids: Sequence[str],
        used_U: np.ndarray,
        open_stream: Callable[[str], StreamReader],
    ) -> None:
        """video_ids: of the manifest set, whose numbers are asked for later. used_U: those that have windows.

        Raises StoreError for a stream that there is not or, unless the config says otherwise, that lacks a video;
        RequestError for one that is no further stream of vectors.
        """
        self._first, self._used_U = first, used_U
        names = config.also or ()
        if first.name in names or len(set(names)) < len(names):
            raise RequestError(
                f"data.also={list(names)}: expected further streams, each once, and not {first.name!r}, which the "
                "windows were cut for: it comes first anyway"
            )
        self._others = [open_stream(name) for name in names]
        self._number_SV = [stream.index_of(video_ids) for stream in (first, *self._others)]
        for stream, number_V in zip(self._others, self._number_SV[1:], strict=True):
            check_vectors(stream, "data.also names it")
            if config.missing is None:
                _refuse_missing(stream, video_ids, used_U, number_V)
        self.dims = tuple(stream.row_shape[0] for stream in (first, *self._others))
        self.dtype = np.result_type(*(stream.dtype for stream in (first, *self._others)))

    @property
    def names(self) -> list[str]:
        return [stream.name for stream in self._others]

    @property
    def row_bytes(self) -> int:
        """Of one row of each further stream, as stored."""
        return sum(stream.row_shape[0] * stream.dtype.itemsize for stream in self._others)

    @property
    def kinds(self) -> list[dict[str, Any]]:
        """Plain values: what made the rows of each, for checkpoints."""
        return [
            {"name": s.name, "fingerprint": s.fingerprint, "identity": s.entry.identity, "dim": s.row_shape[0]}
            for s in self._others
        ]

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the rows, by name: what made them, and how many of which video there are."""
        return {
            stream.name: {"stream": stream.fingerprint, "rows": hash_bytes(self._rows_held(place).tobytes())}
            for place, stream in enumerate(self._others, start=1)
        }

    def most_bytes(self, rows: int) -> int:
        """Most bytes of further streams that belong to so many different rows of the first one."""
        return sum(
            min(rows, int(self._rows_held(place).sum())) * stream.row_shape[0] * stream.dtype.itemsize
            for place, stream in enumerate(self._others, start=1)
        )

    def fill(self, video_B: np.ndarray, row_BT: np.ndarray, mask_BT: np.ndarray, out_BTD: np.ndarray) -> None:
        """Rows of all streams; zeros where mask_BT is False, and in the channels of a stream without the video.

        video_B: numbers in `video_ids`. row_BT: of the first stream, relative to the video. Raises DamageFound.
        """
        at_N = np.flatnonzero(mask_BT)
        video_N, row_N = np.repeat(video_B, mask_BT.sum(axis=1)), row_BT.reshape(-1)[at_N]
        number_N = self._number_SV[0][video_N]
        flat_PD = out_BTD.reshape(-1, out_BTD.shape[-1])
        # Where every place has a row, a slice is written several times as fast.
        places: slice | np.ndarray = slice(None) if len(at_N) == len(flat_PD) else at_N
        flat_PD[~mask_BT.reshape(-1)] = 0
        flat_PD[places, : self.dims[0]] = _read(self._first, number_N, row_N)
        middle_N, begin = self._first.times.middles(number_N, row_N), self.dims[0]
        for stream, number_V in zip(self._others, self._number_SV[1:], strict=True):
            channels = slice(begin, begin + stream.row_shape[0])
            begin, number_N = channels.stop, number_V[video_N]
            has_N = number_N >= 0
            if has_N.all():
                flat_PD[places, channels] = _read(stream, number_N, stream.times.rows_at(number_N, middle_N))
                continue
            flat_PD[at_N[~has_N], channels] = 0
            number_M = number_N[has_N]
            flat_PD[at_N[has_N], channels] = _read(stream, number_M, stream.times.rows_at(number_M, middle_N[has_N]))

    def _rows_held(self, place: int) -> np.ndarray:
        """int64: rows of each video that has windows, 0 where the stream lacks it."""
        stream, number_U = (self._first, *self._others)[place], self._number_SV[place][self._used_U]
        # One more entry, which -1 picks.
        rows_U: np.ndarray = np.append(stream.rows_per_video, 0)[number_U]
        return rows_U


def check_vectors(stream: StreamReader, why: str) -> None:
    """Raise RequestError unless a stream holds one vector a row. why: it is asked for."""
    if stream.entry.kind != "features" or len(stream.row_shape) != 1:
        raise RequestError(
            f"stream {stream.name!r} holds {stream.entry.kind}, rows {stream.row_shape}, and {why}; training needs "
            "features, one vector a row: name such a stream"
        )


def _refuse_missing(stream: StreamReader, video_ids: Sequence[str], used_U: np.ndarray, number_V: np.ndarray) -> None:
    missing = used_U[number_V[used_U] < 0].tolist()
    if missing:
        shown = ", ".join(repr(video_ids[video]) for video in missing[:_SHOWN])
        raise StoreError(
            f"stream {stream.name!r} of {stream.store} lacks {len(missing)} of {len(used_U)} videos with windows "
            f"({shown}{', ...' if len(missing) > _SHOWN else ''}): extract them (`python -m "
            f"preprocess failures {stream.store}` may say why they are not there), or set data.missing=zeros for "
            "rows of zeros in their place"
        )


def _read(stream: StreamReader, video_N: np.ndarray, row_N: np.ndarray) -> np.ndarray:
    """(N, D): one row each; rows that follow each other in a video are copied in one piece."""
    out_ND = np.empty((len(row_N), *stream.row_shape), stream.dtype)
    begins_N = np.ones(len(row_N), bool)
    begins_N[1:] = (np.diff(row_N) != 1) | (np.diff(video_N) != 0)
    at_M = np.flatnonzero(begins_N)
    stream.place(video_N[at_M], row_N[at_M], np.diff(at_M, append=len(row_N)), out_ND, at_M)
    return out_ND
