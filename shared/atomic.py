"""How bytes become durable: a temporary name, fsync, rename, fsync of the directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.errors import StoppedEarly

_FULL = {
    errno.ENOSPC: ("no space left", "free some space"),
    errno.EDQUOT: ("no space left", "free some space"),
    errno.EFBIG: ("a file may not become as large as that", "raise the limit (ulimit -f)"),
}


@contextmanager
def disk_full_stops(path: Path) -> Iterator[None]:
    """Turn "no space left", "quota exceeded" and "file too large" into StoppedEarly: what was there before is whole,
    and the run can go on later."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        what, remedy = _FULL[error.errno]
        raise StoppedEarly(
            f"{what} while writing {path}: nothing that was committed is damaged; {remedy} and run the same command "
            "again"
        ) from error


def fsync_file(path: Path) -> None:
    """Force a file's content to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_directory(path: Path) -> None:
    """Force a directory's entries (names that were added, replaced or removed) to the disk."""
    fsync_file(path)


def make_directory(path: Path) -> None:
    """Make a directory and those above it, and make each new name durable. Raises OSError, StoppedEarly."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    with disk_full_stops(path):
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            fsync_directory(folder.parent)


def write_new_file(path: Path, data: bytes) -> None:
    """Write and fsync a file whose name nobody looks at yet."""
    with disk_full_stops(path), path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes) -> None:
    """Give `path` new content: readers see the old bytes or the new, whatever is killed whenever."""
    temporary = path.with_name(f".{path.name}.tmp")
    write_new_file(temporary, data)
    move_into_place(temporary, path)


def move_into_place(temporary: Path, path: Path) -> None:
    """Rename a finished, fsynced file to its final name and make the name durable. Same file system."""
    with disk_full_stops(path):
        temporary.replace(path)
        fsync_directory(path.parent)
