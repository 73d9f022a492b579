"""Identities of media files: size and xxh3-128 of the content, remembered by path, size and time of change.

The memory is a cache beside the store (`STORE/.cache/sources.sqlite`): without it files are read again, nothing else
changes.
"""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Collection
from pathlib import Path
from types import TracebackType

from shared.fingerprint import hash_file
from shared.schema import Source


class SourceCache:
    """Answers `source_of(path)`; None when there is no readable file. Use as a context manager."""

    def __init__(self, store: Path) -> None:
        folder = store / ".cache"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._database = _open_database(folder / "sources.sqlite")
        except sqlite3.DatabaseError:  # damaged: it is only a memory, and files are read again
            (folder / "sources.sqlite").unlink()
            self._database = _open_database(folder / "sources.sqlite")

    def source_of(self, path: Path) -> Source | None:
        """The file's identity now."""
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                return None
            key = (str(path), status.st_size, status.st_mtime_ns)
            known = self._database.execute(
                "SELECT xxh3 FROM source WHERE path = ? AND bytes = ? AND mtime_ns = ?", key
            ).fetchone()
            source = Source(bytes=status.st_size, xxh3=known[0] if known else hash_file(path))
        except OSError:
            return None
        if not known:
            self.remember(path, source, status.st_mtime_ns)
        return source

    def remember(self, path: Path, source: Source, mtime_ns: int) -> None:
        """Note what was found at a path by someone who looked at its time first and read its content then."""
        row = (str(path), source.bytes, mtime_ns, source.xxh3)
        self._database.execute("INSERT OR REPLACE INTO source VALUES (?, ?, ?, ?)", row)
        self._database.commit()

    def keep_only(self, sources: Collection[Source]) -> None:
        """Forget every file whose content is none of these, paths included: nothing of them is left in the database."""
        kept = {(source.bytes, source.xxh3) for source in sources}
        rows = self._database.execute("SELECT path, bytes, xxh3 FROM source").fetchall()
        gone = [(path,) for path, size, xxh3 in rows if (size, xxh3) not in kept]
        self._database.executemany("DELETE FROM source WHERE path = ?", gone)
        self._database.commit()
        self._database.execute("VACUUM")

    def __enter__(self) -> SourceCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.commit()
        self._database.close()


def _open_database(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.execute(
        "CREATE TABLE IF NOT EXISTS source (path TEXT PRIMARY KEY, bytes INTEGER, mtime_ns INTEGER, xxh3 TEXT)"
    )
    if database.execute("PRAGMA quick_check").fetchone() != ("ok",):
        database.close()
        raise sqlite3.DatabaseError("damaged")
    return database
