"""Copies of row files on a disk of this host, for stores that lie on a slow or a shared one."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from shared.atomic import disk_full_stops, fsync_directory
from shared.errors import RequestError
from shared.features import StreamReader
from shared.row_sources import ShardRows
from shared.store_files import open_file, stat_file, unreadable

_BLOCK = 1 << 23


def staged(stream: StreamReader, folder: Path) -> Path:
    """Copy the row files of a stream into a folder of `folder` that is the stream's own; return that folder.

    A file that is there in its full size is left as it is: it got its name after its content was durable, its name
    carries a hash of its content, and its blocks are checked when they are read, like those of the store. Processes of
    a host that come together copy once. Nothing is ever deleted but what a copy that fails has written. Raises
    StoppedEarly where the disk is full, RequestError where `folder` cannot be written to, DamageFound or StoreError
    where a file of the store cannot be read.
    """
    target = folder / f"{stream.name}-{stream.fingerprint[:12]}"
    try:
        target.mkdir(parents=True, exist_ok=True)
        with (target / ".lock").open("w") as lock, disk_full_stops(target):
            fcntl.flock(lock, fcntl.LOCK_EX)
            made = [_copy(source, target / source.path.name) for source in stream.shard_rows(stream.folder)]
            if any(made):
                fsync_directory(target)
    except OSError as error:
        raise RequestError(
            f"{target} cannot take copies of stream {stream.name!r}: {error.strerror or error}; "
            "give a folder on a local disk"
        ) from None
    return target


def _copy(source: ShardRows, target: Path) -> bool:
    """Whether there was something to copy. Raises OSError for the target alone."""
    try:
        size = stat_file(source.path).st_size
    except OSError as error:
        raise unreadable(source.path, error) from None
    if target.exists() and target.stat().st_size == size:
        return False
    source.offset()  # a file that is not what its index says would make a copy that is to blame
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        _write_copy(source.path, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _write_copy(source: Path, temporary: Path) -> None:
    """Durable before it gets its name: what a power cut leaves must not have the size of a whole copy."""
    buffer = memoryview(bytearray(_BLOCK))
    try:
        descriptor = open_file(source)
    except OSError as error:
        raise unreadable(source, error) from None
    try:
        with temporary.open("wb") as file:
            while count := _read(descriptor, buffer, source):
                file.write(buffer[:count])
            file.flush()
            os.fsync(file.fileno())
    finally:
        os.close(descriptor)


def _read(descriptor: int, buffer: memoryview, source: Path) -> int:
    try:
        return os.readv(descriptor, [buffer])
    except OSError as error:
        raise unreadable(source, error) from None
