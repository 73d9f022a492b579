"""Copies of row files on a disk of this host, for stores that lie on a slow or a shared one."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

from shared.atomic import disk_full_stops
from shared.errors import DamageFound, RequestError
from shared.features import StreamReader


def staged(stream: StreamReader, folder: Path) -> Path:
    """Copy the row files of a stream into a folder of `folder` that is the stream's own; return that folder.

    A file that is there in its full size is left as it is: its name carries a hash of its content, and its blocks are
    checked when they are read, like those of the store. Processes of a host that come together copy once. Nothing is
    ever deleted. Raises StoppedEarly where the disk is full, RequestError where `folder` cannot be written to.
    """
    target = folder / f"{stream.name}-{stream.fingerprint[:12]}"
    try:
        target.mkdir(parents=True, exist_ok=True)
        with (target / ".lock").open("w") as lock, disk_full_stops(target):
            fcntl.flock(lock, fcntl.LOCK_EX)
            for source in stream.row_files:
                _copy(source, target / source.name)
    except OSError as error:
        raise RequestError(
            f"{target} cannot take copies of stream {stream.name!r}: {error.strerror}; give a folder on a local disk"
        ) from None
    return target


def _copy(source: Path, target: Path) -> None:
    try:
        size = source.stat().st_size
    except FileNotFoundError:
        raise DamageFound(f"{source} is missing: run `verify` on the store, then `repair`") from None
    if target.exists() and target.stat().st_size == size:
        return
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.copyfile(source, temporary)
    temporary.replace(target)
