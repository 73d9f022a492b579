"""What is read is checked before it is believed: files against the root, rows against the checksums of their shard.

Each file and each block once, the first time it is read: later reads cost a look at a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from shared.errors import DamageFound
from shared.fingerprint import hash_file
from shared.schema import Checksums, FileEntry, ShardIndex
from shared.shard_writer import block_digests

# Digits of a 64-bit checksum in hex.
_DIGEST = 16
MISSING = "missing"


class FileChecks:
    """The files of a store as its root names them. Files that were found whole are not read for it again.

    entries: of the files that may be asked for, by their paths relative to the store.
    """

    def __init__(self, store: Path, entries: Mapping[str, FileEntry]) -> None:
        self._store, self._entries = store, entries
        self._whole: set[str] = set()

    def require(self, name: str) -> None:
        """Raise DamageFound naming the file unless it has the size and the xxh3-128 that the root says."""
        if name in self._whole:
            return
        entry = self._entries.get(name)
        what = check_file(self._store / name, entry) if entry else "the root does not name it"
        if what:
            state = what if what == MISSING else f"damaged: {what}"
            # A set can be made again from what the store keeps.
            remedy = "`python -m preprocess manifests CONFIG`" if name.startswith("manifests/") else "`repair`"
            raise DamageFound(f"{self._store / name} is {state}; run `verify`, then {remedy}")
        self._whole.add(name)

    def below(self, folder: str) -> FileChecks:
        """The files of one folder alone, for a reader that travels to another process."""
        inside = f"{folder}/"
        part = FileChecks(self._store, {name: e for name, e in self._entries.items() if name.startswith(inside)})
        part._whole = {name for name in self._whole if name.startswith(inside)}
        return part


def check_file(path: Path, entry: FileEntry) -> str | None:
    """What is wrong with a file, or None. Size first: it is cheap and tells a truncation from a changed bit."""
    if not path.is_file():
        return MISSING
    size = path.stat().st_size
    if size != entry.bytes:
        return f"holds {size} bytes, expected {entry.bytes}"
    try:
        found = hash_file(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None if found == entry.xxh3 else f"content changed: xxh3 {found}, expected {entry.xxh3}"


class BlockChecks:
    """The blocks of one shard's rows. path: of its row file, for messages. rows: (N, *row_shape), mapped."""

    def __init__(self, path: Path, rows: np.ndarray, index: ShardIndex) -> None:
        self._path, self._rows, self._index = path, rows, index
        self._unread_N = np.ones(-(-len(rows) // index.checksums.block_rows), bool)
        self._done = False

    def require(self, row_N: np.ndarray) -> None:
        """Check the blocks of the given rows that nobody has read yet. Raises DamageFound naming file and video."""
        if self._done:
            return
        block_N = row_N // self._index.checksums.block_rows
        blocks = np.unique(block_N[self._unread_N[block_N]]).tolist()
        if not blocks:
            return
        bad = bad_blocks(self._rows, self._index.checksums, blocks)
        if bad:
            raise DamageFound(
                f"{self._path} is damaged: the checksum of block {bad[0]}, which holds rows of {self._videos(bad[0])}, "
                "is another one; run `verify`, then `repair`"
            )
        # Two threads at most do the same work twice: a block is marked only after it was found whole.
        self._unread_N[blocks] = False
        self._done = not self._unread_N.any()

    def _videos(self, block: int) -> str:
        first = block * self._index.checksums.block_rows
        last = first + self._index.checksums.block_rows
        inside = [v.id for v in self._index.videos if v.first_row < last and v.first_row + v.rows > first]
        return (
            ("video " if len(inside) == 1 else "videos ")
            + ", ".join(map(repr, inside[:3]))
            + (", ..." if len(inside) > 3 else "")
        )


def bad_blocks(rows: np.ndarray, checksums: Checksums, blocks: list[int]) -> list[int]:
    """Those of the given blocks of rows whose checksum is another one, or is not there."""
    found = block_digests(rows, checksums.block_rows, blocks)
    stored = checksums.xxh3_64
    return [b for b, digest in zip(blocks, found, strict=True) if digest != stored[b * _DIGEST : (b + 1) * _DIGEST]]
