"""Reading rows: one stream of a store, by video and time, gathered in batches across shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import ValidationError

from shared.checks import BlockChecks, FileChecks
from shared.containers import map_array, map_rows
from shared.errors import DamageFound, Failure, StoreError
from shared.explain import first_fault
from shared.fingerprint import fingerprint, hash_bytes
from shared.schema import FailureRecord, FileEntry, ShardIndex, StreamEntry, VideoRecord, stream_folder
from shared.shard_writer import regular_spans

Verify = Literal["first", "never"]


class StreamReader:
    """The rows of one stream. Video numbers are positions in `video_ids`, which is sorted.

    video_ids: list of str. rows_per_video: int64 (V,). durations: float64 (V,), seconds.
    failures: (video id, Failure) of every video that has no rows in this stream.
    Opens row files lazily in each process; pickles as a path, a name and a fingerprint.
    Whatever reads rows, spans or valid counts raises DamageFound where they are missing or damaged.
    """

    def __init__(
        self,
        store: Path,
        name: str,
        entry: StreamEntry,
        files: Mapping[str, FileEntry] | None = None,
        *,
        verify: Verify = "first",
    ) -> None:
        """files: what the root says of every file; indexes, spans and valid counts are checked against it where it is
        given. verify: whether blocks of rows are checked when they are read for the first time.

        Raises DamageFound for an index that is missing or damaged.
        """
        self.store, self.name, self.entry = store, name, entry
        self.folder = store / stream_folder(entry.kind, name)
        below = stream_folder(entry.kind, name)
        self._verify = verify
        self._files = FileChecks(store, files) if files is not None else None
        self._indexes = [
            read_shard_index(self.folder, ref.name, files.get(f"{below}/{ref.name}.json") if files else None)
            for ref in entry.shards
        ]
        placed = [(video, shard) for shard, index in enumerate(self._indexes) for video in index.videos]
        placed.sort(key=lambda pair: pair[0].id)
        self._records = [video for video, _ in placed]
        self.video_ids = [video.id for video in self._records]
        self._number = {video_id: number for number, video_id in enumerate(self.video_ids)}
        if len(self._number) != len(self.video_ids):
            raise StoreError(
                f"stream {name!r} of {store} holds a video twice: run `python -m preprocess verify {store}`"
            )
        self._shard_of = np.array([shard for _, shard in placed], dtype=np.int32)
        self._first_row = np.array([video.first_row for video in self._records], dtype=np.int64)
        self.rows_per_video = np.array([video.rows for video in self._records], dtype=np.int64)
        self.durations = np.array([video.duration for video in self._records], dtype=np.float64)
        self._rows: dict[int, np.ndarray] = {}
        self._blocks: dict[int, BlockChecks] = {}

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
    def failure_records(self) -> list[FailureRecord]:
        """Every video that has no rows in this stream, by id."""
        return sorted((record for index in self._indexes for record in index.failed), key=lambda record: record.id)

    @property
    def failures(self) -> list[tuple[str, Failure]]:
        """The same as values."""
        return [(r.id, Failure(r.reason, r.stage, r.message)) for r in self.failure_records]

    def index_of(self, video_ids: Sequence[str]) -> np.ndarray:
        """int64 (N,): the number of each video, -1 where the stream has no rows of it."""
        return np.array([self._number.get(video_id, -1) for video_id in video_ids], dtype=np.int64)

    def record(self, video: int) -> VideoRecord:
        return self._records[video]

    def spans(self, video: int) -> np.ndarray:
        """float64 (rows, 2): [start, end) of every row of a video, in seconds."""
        record = self._records[video]
        if record.step is None or record.length is None:
            return self._side_array(video, ".spans.npy", np.dtype(np.float64), (2,))
        return regular_spans(record.rows, record.start, record.step, record.length, record.end)

    def valid(self, video: int) -> np.ndarray:
        """int32 (rows,): real frames in each row, 0 where all are."""
        if not self._indexes[self._shard_of[video]].valid:
            return np.zeros(self._records[video].rows, np.int32)
        return self._side_array(video, ".valid.npy", np.dtype(np.int32), ())

    def read(self, video: int) -> np.ndarray:
        """(rows, *row_shape): a read-only view of all rows of a video."""
        first, shard = int(self._first_row[video]), int(self._shard_of[video])
        last = first + int(self.rows_per_video[video])
        rows = self._shard_rows(shard)
        self._require(shard, np.arange(first, last))
        return rows[first:last]

    def gather(
        self, video_B: np.ndarray, first_row_B: np.ndarray, rows_B: np.ndarray, length: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows [first_row, first_row + rows) of each video, padded with zeros.

        first_row_B, rows_B: relative to the video. length: T of the result; default: the largest of rows_B.
        Returns (B, T, *row_shape) of the stored dtype and a bool mask (B, T).
        length: windows that are longer are cut at it.
        Raises IndexError when a window leaves its video, or when there is no such video (`index_of` gives -1).
        """
        if ((video_B < 0) | (video_B >= len(self.video_ids))).any():
            raise IndexError(f"a window is of a video that stream {self.name!r} of {self.store} does not have")
        if ((first_row_B < 0) | (rows_B < 0) | (first_row_B + rows_B > self.rows_per_video[video_B])).any():
            raise IndexError(f"a window leaves its video in stream {self.name!r} of {self.store}")
        steps = int(rows_B.max(initial=0)) if length is None else length
        mask_BT = np.arange(steps) < rows_B[:, None]
        row_BT = np.where(mask_BT, (self._first_row[video_B] + first_row_B)[:, None] + np.arange(steps), 0)
        out = np.zeros((len(video_B), steps, *self.row_shape), self.dtype)
        shard_B = self._shard_of[video_B]
        for shard in np.unique(shard_B):
            wanted = mask_BT & (shard_B == shard)[:, None]
            rows, row_N = self._shard_rows(int(shard)), row_BT[wanted]
            self._require(int(shard), row_N)
            out[wanted] = rows[row_N]
        return out, mask_BT

    def _require(self, shard: int, row_N: np.ndarray) -> None:
        if self._verify == "first":
            self._blocks[shard].require(row_N)

    def _shard_rows(self, shard: int) -> np.ndarray:
        if shard not in self._rows:
            index, ref = self._indexes[shard], self.entry.shards[shard]
            path = self.folder / f"{ref.name}.{index.container}"
            if not path.exists():
                raise DamageFound(f"{path} is missing: run `python -m preprocess verify {self.store}`")
            rows = map_rows(index.container, path, (index.rows, *index.row_shape), index.dtype)
            self._blocks[shard] = BlockChecks(path, rows, index)
            self._rows[shard] = rows
        return self._rows[shard]

    def _side_array(self, video: int, suffix: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        shard = self._shard_of[video]
        path = self.folder / f"{self.entry.shards[shard].name}{suffix}"
        if self._files is not None:
            self._files.require(path.relative_to(self.store).as_posix())
        whole = map_array(path, dtype, (self._indexes[shard].rows, *shape))
        first = self._first_row[video]
        return np.array(whole[first : first + self.rows_per_video[video]])

    def __reduce__(self) -> tuple[object, ...]:
        return _open_same, (self.store, self.name, fingerprint(self.entry.model_dump(mode="json")), self._verify)


def _open_same(store: Path, name: str, entry_fingerprint: str, verify: Verify) -> StreamReader:
    """A stream again in another process. Raises StoreError when it has changed since it was pickled."""
    from shared.store import open_store  # `store` builds on this module

    stream = open_store(store).stream(name, verify=verify)
    if fingerprint(stream.entry.model_dump(mode="json")) != entry_fingerprint:
        raise StoreError(
            f"stream {name!r} of {store} was changed while it was in use: start again with the store as it is"
        )
    return stream


def read_shard_index(folder: Path, name: str, expected: FileEntry | None = None) -> ShardIndex:
    """`<shard>.json`, checked against what the root says of it where that is given.

    Raises DamageFound when it is missing, changed, or not what the format says.
    """
    path = folder / f"{name}.json"
    try:
        data = path.read_bytes()
        if expected is not None and hash_bytes(data) != expected.xxh3:
            raise DamageFound(f"{path} is not what the root says: its content changed; run `verify`, then `repair`")
        return ShardIndex.model_validate_json(data)
    except (FileNotFoundError, IsADirectoryError):
        raise DamageFound(f"{path} is missing; run `verify`, then `repair`") from None
    except ValidationError as error:
        raise DamageFound(f"{path} is not a shard index: {first_fault(error)}; run `verify`, then `repair`") from None
