"""Writing one shard: rows of many videos, appended in pieces, closed when whole, taken back when a video fails.

The writer works in a scratch folder and touches nothing of the store; `store.StoreWriter.commit` moves what it returns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import xxhash

from shared.atomic import disk_full_stops, write_new_file
from shared.containers import create_row_file, map_rows, npy_header
from shared.errors import Failure
from shared.fingerprint import canonical_json, fingerprint, hash_file
from shared.row_values import not_finite_rows, zero_rows
from shared.schema import (
    Checksums,
    FailureRecord,
    FileEntry,
    ShardIndex,
    ShardRef,
    Source,
    StreamEntry,
    VideoRecord,
    stream_folder,
)

_BLOCK_BYTES = 1 << 16
_SAME_SECONDS = 1e-6


class BadRowsError(Exception):
    """Rows that must not enter a store; carries the Failure to record for their video."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True)
class FinishedFile:
    """A finished file in scratch, the path it gets below the store, and what the root will say of it."""

    scratch: Path
    path: str
    entry: FileEntry


@dataclass(frozen=True)
class FinishedShard:
    stream: str
    ref: ShardRef
    files: tuple[FinishedFile, ...]


class ShardWriter:
    """Collects the rows of one stream for one unit.

    stream, entry: the stream's name and its facts (row shape, dtype, container, fingerprint).
    unit: identity of the work; number: the unit's number, which the shard's name begins with.
    """

    def __init__(self, scratch: Path, stream: str, entry: StreamEntry, unit: str, number: int) -> None:
        with disk_full_stops(scratch):
            scratch.mkdir(parents=True, exist_ok=True)
        self._stream, self._entry, self._unit, self._number = stream, entry, unit, number
        self._base = scratch / f"{stream}-{number:05d}-{unit}"
        with disk_full_stops(self._base):
            self._file = create_row_file(entry.container, self._base, entry.row_shape, entry.dtype)
        self._rows = 0
        self._closed_rows = 0
        self._videos: list[VideoRecord] = []
        self._failed: list[FailureRecord] = []
        self._spans: list[np.ndarray] = []
        self._valid: list[np.ndarray] = []

    @property
    def growing(self) -> Path:
        """The row file while it grows: a `.npy`, or an HDF5 file to open with `swmr=True`."""
        return self._file.growing

    @property
    def rows(self) -> int:
        """Rows so far, those of the current video included."""
        return self._rows

    def append(self, rows: np.ndarray) -> None:
        """Add rows (n, *row_shape) to the current video. Raises BadRowsError for non-finite or all-zero features."""
        if rows.shape[1:] != self._entry.row_shape or rows.dtype != np.dtype(self._entry.dtype):
            raise ValueError(
                f"got rows {rows.dtype}{rows.shape}, "
                f"stream {self._stream} holds {self._entry.dtype}{self._entry.row_shape}"
            )
        if self._entry.kind == "features":
            _refuse_bad_rows(rows)
        with disk_full_stops(self._base):
            self._file.append(rows)
        self._rows += len(rows)

    def end_video(
        self,
        video_id: str,
        *,
        source: Source,
        duration: float,
        decoder: str,
        partial: bool,
        spans: np.ndarray,
        valid: np.ndarray,
    ) -> None:
        """Close the current video.

        spans: float64 (rows, 2), [start, end) in seconds.
        valid: int (rows,), how many frames of the row are real and not padding; 0 means "all".
        """
        rows = self._rows - self._closed_rows
        if rows == 0 or spans.shape != (rows, 2) or valid.shape != (rows,):
            raise ValueError(f"video {video_id!r}: {rows} rows, spans {spans.shape}, valid {valid.shape}")
        if not np.isfinite(spans).all() or not (spans[:, 0] <= spans[:, 1]).all():
            raise ValueError(f"video {video_id!r}: its spans are not finite or end before they start")
        start, step, length, end = _regular(spans)
        self._videos.append(
            VideoRecord(
                id=video_id, first_row=self._closed_rows, rows=rows, start=start, step=step, length=length, end=end,
                duration=duration, decoder=decoder, partial=partial, source=source,
            )
        )  # fmt: skip
        self._spans.append(spans.astype(np.float64))
        self._valid.append(valid.astype(np.int32))
        self._closed_rows = self._rows

    def drop_open_rows(self) -> None:
        """Take back the rows of the current video: it failed, or is tried again from its start."""
        if self._rows != self._closed_rows:
            with disk_full_stops(self._base):
                self._file.truncate(self._closed_rows)
            self._rows = self._closed_rows

    def fail_video(self, video_id: str, failure: Failure, source: Source | None) -> None:
        """Take back the current video's rows and record why it has none."""
        self.drop_open_rows()
        self._failed.append(FailureRecord(id=video_id, source=source, **vars(failure)))

    def keep_failure(self, record: FailureRecord) -> None:
        """Carry over what an earlier shard said of a video that is not tried again."""
        self._failed.append(record)

    def finish(self) -> FinishedShard:
        """Close the files; nothing of the store has changed yet."""
        if self._rows != self._closed_rows:
            raise ValueError("the last video was neither ended nor failed")
        with disk_full_stops(self._base):
            row_path = self._file.finish()
        payload = {row_path.suffix: row_path, **self._side_arrays()}
        index = self._index(row_path, payload)
        hashes = {suffix: hash_file(path) for suffix, path in payload.items()}
        name = f"{self._number:05d}-{fingerprint({'index': index.model_dump(mode='json'), 'files': hashes})[:12]}"
        index_path = self._base.with_name(self._base.name + ".json")
        write_new_file(index_path, canonical_json(index.model_dump(mode="json")))
        payload[".json"] = index_path
        hashes[".json"] = hash_file(index_path)
        folder = stream_folder(self._entry.kind, self._stream)
        files = tuple(
            FinishedFile(path, f"{folder}/{name}{suffix}", FileEntry(bytes=path.stat().st_size, xxh3=hashes[suffix]))
            for suffix, path in sorted(payload.items())
        )
        ref = ShardRef(name=name, unit=self._unit, rows=self._rows, videos=len(self._videos), failed=len(self._failed))
        return FinishedShard(self._stream, ref, files)

    def _index(self, row_path: Path, payload: dict[str, Path]) -> ShardIndex:
        rows = map_rows(self._entry.container, row_path, (self._rows, *self._entry.row_shape), self._entry.dtype)
        return ShardIndex(
            stream=self._stream,
            fingerprint=self._entry.fingerprint,
            unit=self._unit,
            container=self._entry.container,
            dtype=self._entry.dtype,
            row_shape=self._entry.row_shape,
            rows=self._rows,
            spans=".spans.npy" in payload,
            valid=".valid.npy" in payload,
            checksums=checksum_rows(rows),
            videos=tuple(self._videos),
            failed=tuple(sorted(self._failed, key=lambda record: record.id)),
        )

    def _side_arrays(self) -> dict[str, Path]:
        """Spans where some video's are irregular, valid counts where some row is padded."""
        arrays: dict[str, np.ndarray] = {}
        if any(video.step is None for video in self._videos):
            arrays[".spans.npy"] = np.concatenate(self._spans)
        if any(valid.any() for valid in self._valid):
            arrays[".valid.npy"] = np.concatenate(self._valid)
        paths = {}
        for suffix, array in arrays.items():
            paths[suffix] = self._base.with_name(self._base.name + suffix)
            write_new_file(paths[suffix], npy_bytes(array))
        return paths

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            with disk_full_stops(self._base):
                self._file.discard()
            for path in self._base.parent.glob(f"{self._base.name}.*"):
                path.unlink()


def checksum_rows(rows: np.ndarray) -> Checksums:
    """xxh3-64 of every block of about 64 KiB of whole rows."""
    row_bytes = math.prod(rows.shape[1:]) * rows.dtype.itemsize
    block_rows = max(1, _BLOCK_BYTES // max(1, row_bytes))
    return Checksums(
        block_rows=block_rows,
        xxh3_64="".join(block_digests(rows, block_rows, range(-(-len(rows) // block_rows)))),
    )


def block_digests(rows: np.ndarray, block_rows: int, blocks: Iterable[int]) -> list[str]:
    """The xxh3-64 (16 hex digits) of the given blocks of `block_rows` rows."""
    return [
        xxhash.xxh3_64_hexdigest(np.ascontiguousarray(rows[b * block_rows : (b + 1) * block_rows]).data) for b in blocks
    ]


def npy_bytes(array: np.ndarray) -> bytes:
    """An array as the bytes of a `.npy` file."""
    return npy_header(array.shape, array.dtype) + array.tobytes()


def _refuse_bad_rows(rows: np.ndarray) -> None:
    bad = not_finite_rows(rows)
    if bad.any():
        raise BadRowsError(Failure("non_finite", "extract", f"{bad.sum()} of {len(rows)} rows are not finite"))
    zero = zero_rows(rows)
    if zero.any():
        raise BadRowsError(Failure("all_zero", "extract", f"{zero.sum()} of {len(rows)} rows are zero everywhere"))


def _regular(spans: np.ndarray) -> tuple[float, float | None, float | None, float]:
    """(start, step, length, end) with step and length None where the spans are not evenly spaced."""
    start, end = float(spans[0, 0]), float(spans[:, 1].max())
    length = float(spans[0, 1]) - start
    step = float(spans[-1, 0] - start) / (len(spans) - 1) if len(spans) > 1 else length
    if np.abs(regular_spans(len(spans), start, step, length, end) - spans).max() > _SAME_SECONDS:
        return start, None, None, end
    return start, step, length, end


def regular_spans(rows: int, start: float, step: float, length: float, end: float) -> np.ndarray:
    """float64 (rows, 2): [start + k * step, min(start + k * step + length, end))."""
    starts = start + np.arange(rows) * step
    return np.stack([starts, np.minimum(starts + length, end)], axis=1)
