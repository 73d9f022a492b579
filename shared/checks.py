"""What is read is checked before it is believed: files against the root, rows against the checksums of their shard.

Each file and each block once, the first time it is read: later reads cost a look at a table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from shared.errors import DamageFound
from shared.fingerprint import hash_file
from shared.row_sources import RowSource, ShardRows
from shared.row_values import bad_row
from shared.schema import Checksums, FileEntry
from shared.shard_writer import block_digests
from shared.store_files import MAKE_SET, REPAIR, is_damage, stat_file, state_of, unreadable

# Digits of a 64-bit checksum in hex.
_DIGEST = 16
# Blocks, of 64 KiB as our writer makes them, that are copied out in one call.
_BLOCKS_AT_ONCE = 16


class FileChecks:
    """The files of a store as its root names them. Files that were found whole are not read for it again.

    entries: of the files that may be asked for, by their paths relative to the store.
    """

    def __init__(self, store: Path, entries: Mapping[str, FileEntry]) -> None:
        self._store, self._entries = store, entries
        self._whole: set[str] = set()

    def require(self, name: str) -> None:
        """Raise DamageFound naming the file unless it has the size and the xxh3-128 that the root says.

        Raises StoreError where that cannot be told, or where the store was changed and has it no more.
        """
        if name in self._whole:
            return
        path, entry = self._store / name, self._entries.get(name)
        remedy = MAKE_SET if name.startswith("manifests/") else REPAIR
        try:
            what = _difference(path, entry) if entry else "the root does not name it"
        except OSError as error:
            raise unreadable(path, error, remedy) from None
        if what:
            raise DamageFound(f"{path} is damaged: {what}; {remedy}")
        self._whole.add(name)

    def entries(self, names: Sequence[str]) -> dict[str, FileEntry] | None:
        """What the root says of some files; None where it does not name all of them."""
        if not all(name in self._entries for name in names):
            return None
        return {name: self._entries[name] for name in names}

    def below(self, folder: str) -> FileChecks:
        """The files of one folder alone, for a reader that travels to another process."""
        inside = f"{folder}/"
        part = FileChecks(self._store, {name: e for name, e in self._entries.items() if name.startswith(inside)})
        part._whole = {name for name in self._whole if name.startswith(inside)}
        return part


def check_file(path: Path, entry: FileEntry) -> str | None:
    """What is wrong with a file, to stand behind its name, or None. Raises StoreError where that cannot be told."""
    try:
        return _difference(path, entry)
    except OSError as error:
        if not is_damage(error):
            raise unreadable(path, error) from None
        return state_of(error)


def _difference(path: Path, entry: FileEntry) -> str | None:
    """Size first: it is cheap and tells a truncation from a changed bit. Raises OSError."""
    size = stat_file(path).st_size
    if size != entry.bytes:
        return f"holds {size} bytes, expected {entry.bytes}"
    found = hash_file(path)
    return None if found == entry.xxh3 else f"content changed: xxh3 {found}, expected {entry.xxh3}"


@dataclass(frozen=True)
class BlockTable:
    """The block checksums of a stream's shards. Blocks are counted through all shards: those of shard s begin at
    first_block_S[s] and hold block_rows_S[s] rows each; digest_N: uint64, the xxh3-64 of each.
    """

    block_rows_S: np.ndarray
    first_block_S: np.ndarray
    digest_N: np.ndarray


class BlockChecks:
    """Blocks of rows against their checksums, and the rows of features against what no extractor may give.

    videos: names the videos that have rows [first, last) of a shard, for messages.
    """

    def __init__(
        self,
        shards: Sequence[ShardRows],
        source: RowSource,
        blocks: BlockTable,
        *,
        features: bool,
        videos: Callable[[int, int, int], str],
    ) -> None:
        self._shards, self._source, self._blocks = shards, source, blocks
        self._features, self._videos = features, videos
        self._rows_S = np.array([shard.shape[0] for shard in shards], np.int64)
        self._unread_N = np.ones(len(blocks.digest_N), bool)
        self._unread, self._marking = len(blocks.digest_N), threading.Lock()

    def require(self, shard_N: np.ndarray, first_N: np.ndarray, rows_N: np.ndarray, *, again: bool = False) -> None:
        """Check the blocks of rows [first, first + rows) of shards that were not checked yet; with `again`, all.

        rows_N: at least 1 each. Raises DamageFound naming file and video.
        """
        if not again and not self._unread:
            return
        size_N, base_N = self._blocks.block_rows_S[shard_N], self._blocks.first_block_S[shard_N]
        low_N, high_N = base_N + first_N // size_N, base_N + (first_N + rows_N - 1) // size_N
        wanted = [np.minimum(low_N + step, high_N) for step in range(int((high_N - low_N).max(initial=-1)) + 1)]
        if not again:
            # Most often none is left, and sorting them would be most of the work.
            wanted = [block_N[self._unread_N[block_N]] for block_N in wanted]
        block_N = np.unique(np.concatenate(wanted)) if wanted else low_N
        for start in range(0, len(block_N), _BLOCKS_AT_ONCE):
            self._check(block_N[start : start + _BLOCKS_AT_ONCE])

    def _check(self, block_N: np.ndarray) -> None:
        shard_N = np.searchsorted(self._blocks.first_block_S, block_N, side="right") - 1
        row_bytes = self._shards[0].row_bytes
        size_N = self._blocks.block_rows_S[shard_N]
        first_N = (block_N - self._blocks.first_block_S[shard_N]) * size_N
        rows_N = np.minimum(self._rows_S[shard_N] - first_N, size_N)
        ends = np.cumsum(rows_N * row_bytes)
        copied = np.empty(ends[-1], np.uint8)
        if row_bytes:
            self._source.copy(shard_N, first_N * row_bytes, rows_N * row_bytes, copied, ends - rows_N * row_bytes)
        parts = np.split(copied, ends[:-1])
        for block, shard, first, part in zip(block_N.tolist(), shard_N.tolist(), first_N.tolist(), parts, strict=True):
            self._check_block(block, shard, first, part)

    def _check_block(self, block: int, shard: int, first: int, part: np.ndarray) -> None:
        file = self._shards[shard]
        rows = part.view(file.dtype).reshape(-1, *file.shape[1:]) if file.row_bytes else part
        if xxhash.xxh3_64_intdigest(part.data) != self._blocks.digest_N[block]:
            number = block - int(self._blocks.first_block_S[shard])
            raise DamageFound(
                f"{file.path} is damaged: the checksum of block {number}, which holds rows of "
                f"{self._videos(shard, first, first + len(rows))}, is another one; {file.remedy}"
            )
        if self._unread_N[block]:
            if self._features:
                self._refuse_bad_rows(shard, first, rows)
            with self._marking:
                # Two threads at most do the same work twice: a block is marked only after it was found whole.
                self._unread -= int(self._unread_N[block])
                self._unread_N[block] = False

    def _refuse_bad_rows(self, shard: int, first: int, rows: np.ndarray) -> None:
        found = bad_row(rows)
        if found:
            row, what = first + found[0], found[1]
            owner = self._videos(shard, row, row + 1)
            raise DamageFound(
                f"{self._shards[shard].path} has a row that is {what}: row {row}, of {owner}; "
                "no model can learn from it: remove the video with `preprocess remove`, or extract it again"
            )


def bad_blocks(rows: np.ndarray, checksums: Checksums, blocks: list[int]) -> list[int]:
    """Those of the given blocks of rows whose checksum is another one, or is not there."""
    found = block_digests(rows, checksums.block_rows, blocks)
    stored = checksums.xxh3_64
    return [b for b, digest in zip(blocks, found, strict=True) if digest != stored[b * _DIGEST : (b + 1) * _DIGEST]]
