"""Reading rows: one stream of a store, by video and time, gathered in batches across shards."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from shared import pooling, row_sources
from shared.checks import BlockChecks, FileChecks
from shared.containers import map_array
from shared.errors import Failure, StoreError
from shared.fingerprint import fingerprint
from shared.index_cache import cached_arrays
from shared.row_sources import LARGEST_TAKEN, MappedRows, ShardRows, row_source
from shared.row_times import RowTimes
from shared.schema import FailureRecord, FileEntry, ShardIndex, StreamEntry, VideoRecord, stream_folder
from shared.shard_writer import regular_spans
from shared.store_files import COPY, REPAIR
from shared.stream_index import StreamIndex, read_shard_index, stream_arrays

Verify = Literal["never", "first", "always"]


class StreamReader:
    """The rows of one stream. Video numbers are positions in `video_ids`, which is sorted.

    video_ids: list of str. rows_per_video: int64 (V,). durations: float64 (V,), seconds.
    failures: (video id, Failure) of every video that has no rows in this stream.
    Opens row files when they are first read, in each process, and keeps no descriptor; pickles as a path, a name and a
    fingerprint. Whatever reads rows, spans or valid counts raises DamageFound where they are missing or damaged.
    """

    def __init__(
        self,
        store: Path,
        name: str,
        entry: StreamEntry,
        files: Mapping[str, FileEntry] | None = None,
        *,
        verify: Verify = "first",
        mapping: row_sources.Mapping = "auto",
        cached: bool = False,
    ) -> None:
        """files: what the root says of every file; indexes, spans and valid counts are checked against it where it is
        given. verify: whether blocks of rows are checked never, when first read, or each time they are read. mapping:
        whether row files are mapped or read. cached: whether a compiled index may be kept beside the store, for one
        of the whole stream as the root has it.

        Raises DamageFound for an index that is missing or damaged, EnvironmentLacking where nothing can be mapped.
        """
        self.store, self.name, self.entry = store, name, entry
        self.folder = store / stream_folder(entry.kind, name)
        self._verify, self._mapping = verify, mapping
        below = stream_folder(entry.kind, name)
        self._index_files = [files.get(f"{below}/{ref.name}.json") if files else None for ref in entry.shards]
        self._files = FileChecks(store, files) if files is not None else None
        self.index = StreamIndex(self._index_arrays(files if cached else None))
        self._indexes: dict[int, ShardIndex] = {}
        self._row_bytes = math.prod(entry.row_shape) * self.dtype.itemsize
        self.read_rows_in(self.folder)

    def _index_arrays(self, files: Mapping[str, FileEntry] | None) -> Mapping[str, np.ndarray]:
        def build() -> dict[str, np.ndarray]:
            return stream_arrays(self.folder, self.name, self.entry, self._index_files)

        if files is None or any(file is None for file in self._index_files):
            return build()
        below = stream_folder(self.entry.kind, self.name)
        sources = {path: files[path] for path in (f"{below}/{ref.name}.json" for ref in self.entry.shards)}
        return cached_arrays(self.store, f"stream-{self.name}", sources, build)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.entry.row_shape

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.entry.dtype)

    @property
    def fingerprint(self) -> str:
        return self.entry.fingerprint

    @property
    def video_ids(self) -> list[str]:
        return self.index.video_ids

    @property
    def rows_per_video(self) -> np.ndarray:
        return self.index.rows_V

    @property
    def durations(self) -> np.ndarray:
        return self.index.duration_V

    @cached_property
    def failure_records(self) -> list[FailureRecord]:
        """Every video that has no rows in this stream, by id."""
        indexes = [self._shard_index(shard) for shard in range(len(self.entry.shards))]
        return sorted((record for index in indexes for record in index.failed), key=lambda record: record.id)

    @property
    def failures(self) -> list[tuple[str, Failure]]:
        """The same as values."""
        return [(r.id, Failure(r.reason, r.stage, r.message)) for r in self.failure_records]

    @property
    def row_files(self) -> list[Path]:
        """The store's row file of every shard."""
        return [shard.path for shard in self.shard_rows(self.folder)]

    def shard_rows(self, folder: Path) -> list[ShardRows]:
        """The row file of every shard in a folder: the store's, or that of its copies."""
        kind, shape, remedy = self.entry.container, self.row_shape, REPAIR if folder == self.folder else COPY
        return [
            ShardRows(folder / f"{ref.name}.{kind}", kind, (ref.rows, *shape), self.entry.dtype, remedy)
            for ref in self.entry.shards
        ]

    def read_rows_in(self, folder: Path) -> None:
        """Read rows from the files of these names in another folder from now on: see `shared.staging`."""
        self._rows_in = folder
        shards = self.shard_rows(folder)
        self._source = row_source(shards, self._mapping)
        takes = isinstance(self._source, MappedRows) and self._source.direct and 0 < self._row_bytes <= LARGEST_TAKEN
        self._direct = self._source if isinstance(self._source, MappedRows) and takes else None
        self._blocks = BlockChecks(
            shards, self._source, self.index.blocks, features=self.entry.kind == "features", videos=self._names
        )

    def index_of(self, video_ids: Sequence[str]) -> np.ndarray:
        """int64 (N,): the number of each video, -1 where the stream has no rows of it."""
        number = self.index.number
        return np.array([number.get(video_id, -1) for video_id in video_ids], dtype=np.int64)

    def record(self, video: int) -> VideoRecord:
        videos = self._shard_index(int(self.index.shard_V[video])).videos
        return videos[bisect_left(videos, int(self.index.first_row_V[video]), key=lambda record: record.first_row)]

    def spans(self, video: int) -> np.ndarray:
        """float64 (rows, 2): [start, end) of every row of a video, in seconds."""
        record = self.record(video)
        if record.step is None or record.length is None:
            return self._side_array(video, ".spans.npy", np.dtype(np.float64), (2,))
        return regular_spans(record.rows, record.start, record.step, record.length, record.end)

    @cached_property
    def times(self) -> RowTimes:
        """When rows are, and which row is at a time, of many videos in one call."""
        return RowTimes(self.index, self.spans)

    def valid(self, video: int) -> np.ndarray:
        """int32 (rows,): real frames in each row, 0 where all are."""
        if not self.index.valid_S[self.index.shard_V[video]]:
            return np.zeros(int(self.rows_per_video[video]), np.int32)
        return self._side_array(video, ".valid.npy", np.dtype(np.int32), ())

    def read(self, video: int, first_row: int = 0, rows: int | None = None) -> np.ndarray:
        """(rows, *row_shape): a copy of the rows of a video from `first_row` on, all or so many of them."""
        count = int(self.rows_per_video[video]) - first_row if rows is None else rows
        out = np.empty((count, *self.row_shape), self.dtype)
        video_1, first_row_1, rows_1 = np.array([[video], [first_row], [count]])
        self.place(video_1, first_row_1, rows_1, out, np.zeros(1, np.int64))
        return out

    def gather(
        self,
        video_B: np.ndarray,
        first_row_B: np.ndarray,
        rows_B: np.ndarray,
        length: int | None = None,
        out: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows [first_row, first_row + rows) of each video, padded with zeros.

        first_row_B, rows_B: relative to the video. length: T of the result; default: the largest of rows_B; longer
        windows are cut at it. out: where to put them, (B, T, *row_shape) of the stored dtype; default: a new array.
        Returns (B, T, *row_shape) of the stored dtype and a bool mask (B, T).
        Raises IndexError when a window leaves its video, or when there is no such video (`index_of` gives -1).
        """
        steps = int(rows_B.max(initial=0)) if length is None else length
        if out is not None and out.shape[:2] != (len(video_B), steps):
            raise ValueError(f"out is {out.shape}, expected {(len(video_B), steps, *self.row_shape)}")
        self._require_inside(video_B, first_row_B, rows_B)
        mask_BT = np.arange(steps) < rows_B[:, None]
        read_B = np.minimum(rows_B, steps)
        if self._direct is not None and out is None and len(video_B) and read_B.min() > 0:
            out = self._taken(self._direct, video_B, first_row_B, read_B, steps)
        else:
            out = np.empty((len(video_B), steps, *self.row_shape), self.dtype) if out is None else out
            self._place(video_B, first_row_B, read_B, out, np.arange(len(video_B)) * steps)
        if read_B.min(initial=steps) < steps:
            out[~mask_BT] = 0
        return out, mask_BT

    def pool(
        self, video_B: np.ndarray, first_row_B: np.ndarray, rows_B: np.ndarray, how: pooling.Pooling = "mean"
    ) -> np.ndarray:
        """float32 (B, *row_shape): mean or maximum of the rows [first_row, first_row + rows) of each video.

        Computed in float32, some windows at a time, so that (B, T, D) never exists; a window's result does not depend
        on the others. rows_B: at least 1 each, else ValueError. Raises IndexError as `gather`.
        """
        if (rows_B < 1).any():
            raise ValueError("a window without rows has neither mean nor maximum")
        self._require_inside(video_B, first_row_B, rows_B)
        pooled_BD = np.empty((len(video_B), math.prod(self.row_shape)), np.float32)
        for part in pooling.batches(rows_B, self._row_bytes):
            rows_NT, _ = self.gather(video_B[part], first_row_B[part], rows_B[part])
            pooled_BD[part] = pooling.pooled(rows_NT.reshape(*rows_NT.shape[:2], -1), rows_B[part], how)
        return pooled_BD.reshape(len(video_B), *self.row_shape)

    def place(
        self, video_N: np.ndarray, first_row_N: np.ndarray, rows_N: np.ndarray, out: np.ndarray, row_N: np.ndarray
    ) -> None:
        """Copy N runs of rows to where they belong: run n becomes the rows from row_N[n] on of `out`.

        out: contiguous, of the stored dtype; its rows are counted through all axes before `row_shape`. What no run
        covers is left as it is. Raises IndexError as `gather` and for a run that leaves `out`, ValueError for an `out`
        of another kind.
        """
        self._require_inside(video_N, first_row_N, rows_N)
        if ((row_N < 0) | ((row_N + rows_N) * self._row_bytes > out.nbytes)).any():
            raise IndexError(f"a window leaves the {out.shape} array that it is read into")
        self._place(video_N, first_row_N, rows_N, out, row_N)

    def _place(
        self, video_N: np.ndarray, first_row_N: np.ndarray, rows_N: np.ndarray, out: np.ndarray, row_N: np.ndarray
    ) -> None:
        fits = out.dtype == self.dtype and out.shape[out.ndim - len(self.row_shape) :] == self.row_shape
        if not (fits and out.flags.c_contiguous):
            raise ValueError(
                f"out is {out.dtype}{out.shape}, expected contiguous {self.dtype} with rows of {self.row_shape}"
            )
        row_bytes = self._row_bytes
        if rows_N.min(initial=1) < 1:
            filled_N = rows_N > 0
            video_N, first_row_N, rows_N, row_N = (a[filled_N] for a in (video_N, first_row_N, rows_N, row_N))
        if len(video_N) == 0 or row_bytes == 0:
            return
        shard_N, row_in_shard_N = self.index.shard_V[video_N], self.index.first_row_V[video_N] + first_row_N
        if self._verify != "never":
            self._blocks.require(shard_N, row_in_shard_N, rows_N, again=self._verify == "always")
        flat = out.reshape(-1).view(np.uint8)
        self._source.copy(shard_N, row_in_shard_N * row_bytes, rows_N * row_bytes, flat, row_N * row_bytes)

    def _taken(
        self, source: MappedRows, video_B: np.ndarray, first_row_B: np.ndarray, rows_B: np.ndarray, steps: int
    ) -> np.ndarray:
        """(B, T, *row_shape): windows of at least one row; behind its last row, that row again."""
        shard_B, row_B = self.index.shard_V[video_B], self.index.first_row_V[video_B] + first_row_B
        if self._verify != "never":
            self._blocks.require(shard_B, row_B, rows_B, again=self._verify == "always")
        window_bytes = steps * self._row_bytes
        if window_bytes <= LARGEST_TAKEN and rows_B.min() == steps:
            taken_BT = source.take(shard_B, row_B * self._row_bytes, window_bytes)
        else:
            row_BT = row_B[:, None] + np.minimum(np.arange(steps), rows_B[:, None] - 1)
            taken_BT = source.take(shard_B[:, None], row_BT * self._row_bytes, self._row_bytes)
        return taken_BT.view(self.dtype).reshape(len(video_B), steps, *self.row_shape)

    def _require_inside(self, video_N: np.ndarray, first_row_N: np.ndarray, rows_N: np.ndarray) -> None:
        if video_N.min(initial=0) < 0 or video_N.max(initial=-1) >= len(self.index):
            raise IndexError(f"a window is of a video that stream {self.name!r} of {self.store} does not have")
        # The sign of a bitwise or is that of either.
        inside = (first_row_N | rows_N).min(initial=0) >= 0
        if not inside or (self.index.rows_V[video_N] - first_row_N - rows_N).min(initial=0) < 0:
            raise IndexError(f"a window leaves its video in stream {self.name!r} of {self.store}")

    def _shard_index(self, shard: int) -> ShardIndex:
        if shard not in self._indexes:
            self._indexes[shard] = read_shard_index(
                self.folder, self.entry.shards[shard].name, self._index_files[shard]
            )
        return self._indexes[shard]

    def _names(self, shard: int, first: int, last: int) -> str:
        videos = self._shard_index(shard).videos
        inside = [v.id for v in videos if v.first_row < last and v.first_row + v.rows > first]
        listed = ", ".join(map(repr, inside[:3])) + (", ..." if len(inside) > 3 else "")
        return ("video " if len(inside) == 1 else "videos ") + listed

    def _side_array(self, video: int, suffix: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        shard = self.index.shard_V[video]
        path = self.folder / f"{self.entry.shards[shard].name}{suffix}"
        if self._files is not None:
            self._files.require(path.relative_to(self.store).as_posix())
        whole = map_array(path, dtype, (self.entry.shards[shard].rows, *shape))
        first = self.index.first_row_V[video]
        return np.array(whole[first : first + self.rows_per_video[video]])

    def __reduce__(self) -> tuple[object, ...]:
        entry_fingerprint = fingerprint(self.entry.model_dump(mode="json"))
        return _open_same, (self.store, self.name, entry_fingerprint, self._verify, self._mapping, self._rows_in)


def _open_same(
    store: Path, name: str, entry_fingerprint: str, verify: Verify, mapping: row_sources.Mapping, rows_in: Path
) -> StreamReader:
    """A stream again in another process. Raises StoreError when it has changed since it was pickled."""
    from shared.store import open_store  # `store` builds on this module

    stream = open_store(store).stream(name, verify=verify, mapping=mapping)
    if fingerprint(stream.entry.model_dump(mode="json")) != entry_fingerprint:
        raise StoreError(
            f"stream {name!r} of {store} was changed while it was in use: start again with the store as it is"
        )
    stream.read_rows_in(rows_in)
    return stream
