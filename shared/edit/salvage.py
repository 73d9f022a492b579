"""What is left of a damaged shard of rows: whole again where its blocks are, else the videos whose blocks are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shared.checks import bad_blocks, check_file
from shared.containers import create_row_file, map_array, map_rows, npy_header
from shared.edit.ids import DAMAGED
from shared.edit.mend import mend_array, unflipped
from shared.errors import DamageFound
from shared.fingerprint import fingerprint, hash_file
from shared.schema import FailureRecord, FileEntry, ShardIndex, ShardRef, StreamEntry, VideoRecord, stream_folder
from shared.shard_writer import FinishedFile, FinishedShard, ShardWriter, block_digests, regular_spans

_COPY_ROWS = 4096
# A bit is looked for in so many blocks: more of them are not single bits, and each takes seconds.
_MOST_BLOCKS = 4


@dataclass(frozen=True)
class Salvaged:
    """Either `files`, which put the shard right to the bit, or `shard`, which takes its place without `lost` videos."""

    files: tuple[FinishedFile, ...] = ()
    shard: FinishedShard | None = None
    lost: tuple[str, ...] = ()


class DamagedShard:
    """A shard of which a file is damaged, and its index whole. files: what the root says; scratch: for what is made."""

    def __init__(
        self,
        store: Path,
        stream: str,
        entry: StreamEntry,
        ref: ShardRef,
        index: ShardIndex,
        files: dict[str, FileEntry],
        scratch: Path,
    ) -> None:
        self._store, self._stream, self._entry, self._ref, self._index = store, stream, entry, ref, index
        self._files, self._scratch = files, scratch
        self._base = f"{stream_folder(entry.kind, stream)}/{ref.name}"

    def salvage(self) -> Salvaged:
        """Raises StoppedEarly on a full disk."""
        mended: list[FinishedFile] = []
        sides: dict[str, np.ndarray | None] = {}
        for present, suffix, dtype, shape in (
            (self._index.spans, ".spans.npy", np.dtype(np.float64), (self._index.rows, 2)),
            (self._index.valid, ".valid.npy", np.dtype(np.int32), (self._index.rows,)),
        ):
            if present:
                sides[suffix] = self._side(suffix, shape, dtype, mended)
        rows = self._rows()
        count = -(-self._index.rows // self._index.checksums.block_rows)
        whole = len(rows) // self._index.checksums.block_rows if len(rows) < self._index.rows else count
        bad = bad_blocks(rows, self._index.checksums, list(range(whole))) + list(range(whole, count))
        fixed = self._unflip(rows, bad) if len(bad) <= _MOST_BLOCKS and len(rows) == self._index.rows else {}
        bad = [block for block in bad if block not in fixed]
        if not bad and all(side is not None for side in sides.values()):
            remade = self._rows_again(rows, fixed)
            if remade is not None:
                return Salvaged(files=(*mended, *remade))
        return self._without(rows, fixed, bad, sides)

    def _side(
        self, suffix: str, shape: tuple[int, ...], dtype: np.dtype, mended: list[FinishedFile]
    ) -> np.ndarray | None:
        path = f"{self._base}{suffix}"
        entry = self._files[path]
        source = self._store / path
        if check_file(source, entry):
            file = mend_array(self._store, path, entry, self._scratch, shape, dtype)
            if file is None:
                return None
            mended.append(file)
            source = file.scratch
        return map_array(source, dtype, shape)

    def _rows(self) -> np.ndarray:
        """The rows that are still in the file, from the first on; nothing of them is checked yet."""
        index, path = self._index, self._store / f"{self._base}.{self._index.container}"
        shape, dtype = (index.rows, *index.row_shape), np.dtype(index.dtype)
        row_bytes = math.prod(index.row_shape) * dtype.itemsize
        if not path.is_file():
            return np.empty((0, *index.row_shape), dtype)
        offset = len(npy_header(shape, dtype))
        if index.container == "h5":
            try:
                return map_rows("h5", path, shape, index.dtype)
            except DamageFound:
                # Without its metadata: the rows are the end of the file. The checksums tell if that is so.
                offset = self._files[f"{self._base}.h5"].bytes - index.rows * row_bytes
        have = min(index.rows, max(0, path.stat().st_size - offset) // max(1, row_bytes))
        if have <= 0:
            return np.empty((0, *index.row_shape), dtype)
        return np.asarray(np.memmap(path, dtype, "r", offset, (have, *index.row_shape)))

    def _unflip(self, rows: np.ndarray, blocks: list[int]) -> dict[int, np.ndarray]:
        size, fixed = self._index.checksums.block_rows, {}
        for block in blocks:
            part = np.ascontiguousarray(rows[block * size : (block + 1) * size])
            expected = self._index.checksums.xxh3_64[block * 16 : block * 16 + 16]

            def is_right(candidate: bytearray, shape: tuple[int, ...] = part.shape, expected: str = expected) -> bool:
                array = np.frombuffer(candidate, rows.dtype).reshape(shape)
                return block_digests(array, len(array), [0]) == [expected]

            data = unflipped(part.tobytes(), is_right)
            if data is not None:
                fixed[block] = np.frombuffer(data, rows.dtype).reshape(part.shape)
        return fixed

    def _rows_again(self, rows: np.ndarray, fixed: dict[int, np.ndarray]) -> list[FinishedFile] | None:
        """The row file written again, if that gives the very file; nothing where it is whole."""
        path = f"{self._base}.{self._index.container}"
        entry = self._files[path]
        if check_file(self._store / path, entry) is None:
            return []
        self._scratch.mkdir(parents=True, exist_ok=True)
        file = create_row_file(
            self._index.container, self._scratch / f"again-{self._ref.name}", self._index.row_shape, self._index.dtype
        )
        for part in self._parts(rows, fixed, 0, self._index.rows):
            file.append(part)
        made = file.finish()
        if hash_file(made) != entry.xxh3:
            made.unlink()
            return None
        return [FinishedFile(made, path, entry)]

    def _parts(self, rows: np.ndarray, fixed: dict[int, np.ndarray], first: int, last: int) -> Iterator[np.ndarray]:
        """Rows [first, last) in pieces, blocks that were fixed in the place of those in the file."""
        size = self._index.checksums.block_rows
        while first < last:
            block = first // size
            end = min(last, (block + 1) * size) if fixed else min(last, first + _COPY_ROWS)
            if block in fixed:
                yield fixed[block][first - block * size : end - block * size]
            else:
                yield rows[first:end]
            first = end

    def _without(
        self, rows: np.ndarray, fixed: dict[int, np.ndarray], bad: list[int], sides: dict[str, np.ndarray | None]
    ) -> Salvaged:
        size, index = self._index.checksums.block_rows, self._index
        bad_row_N = np.zeros(index.rows, bool)
        for block in bad:
            bad_row_N[block * size : (block + 1) * size] = True
        spans, valid = sides.get(".spans.npy"), sides.get(".valid.npy")
        lost = [
            video
            for video in index.videos
            if bad_row_N[video.first_row : video.first_row + video.rows].any()
            or (video.step is None and spans is None)
            or (index.valid and valid is None)
        ]
        ids = {video.id for video in lost}
        unit = fingerprint([self._ref.unit, DAMAGED, sorted(ids)])
        number = int(self._ref.name.partition("-")[0])
        with ShardWriter(self._scratch, self._stream, self._entry, unit, number) as writer:
            for video in index.videos:
                if video.id in ids:
                    writer.keep_failure(_damaged(video))
                    continue
                for part in self._parts(rows, fixed, video.first_row, video.first_row + video.rows):
                    writer.append(part)
                _end(writer, video, spans, valid)
            for record in index.failed:
                writer.keep_failure(record)
            return Salvaged(shard=writer.finish(), lost=tuple(video.id for video in lost))


def _end(writer: ShardWriter, video: VideoRecord, spans: np.ndarray | None, valid: np.ndarray | None) -> None:
    here = slice(video.first_row, video.first_row + video.rows)
    if video.step is not None and video.length is not None:
        own_spans = regular_spans(video.rows, video.start, video.step, video.length, video.end)
    else:
        assert spans is not None, "irregular videos without spans are lost"
        own_spans = np.array(spans[here])
    writer.end_video(
        video.id,
        source=video.source,
        duration=video.duration,
        decoder=video.decoder,
        partial=video.partial,
        spans=own_spans,
        valid=np.zeros(video.rows, np.int32) if valid is None else np.array(valid[here]),
    )


def _damaged(video: VideoRecord) -> FailureRecord:
    message = "its rows were damaged and dropped by `repair`; the next run extracts them again"
    return FailureRecord(id=video.id, reason=DAMAGED, stage="extract", message=message, source=video.source)
