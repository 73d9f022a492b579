"""A folder on a host's own disk where shards grow, and the way from there into the store's scratch.

A worker's folder is `clipmill-<host>-<store>-<random>`, locked (flock) for as long as the worker uses it: the kernel
drops the lock with the process. So a folder of this host whose lock is free belongs to nobody, whatever run or store
it was of, and the next worker on that host deletes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import xxhash

from shared.atomic import disk_full_stops
from shared.errors import EnvironmentLacking, RunFailed
from shared.fingerprint import hash_bytes
from shared.shard_writer import FinishedFile, FinishedShard

_BLOCK = 1 << 22
_POLL_S = 0.05


@contextmanager
def local_folder(root: Path, store: Path) -> Iterator[Path]:
    """A new, locked folder below `root` for the block, deleted at its end; before, what dead workers left is deleted.

    store: the store's own scratch, in the folder's name. Raises EnvironmentLacking where `root` cannot be used,
    StoppedEarly on a full disk.
    """
    try:
        with disk_full_stops(root):
            root.mkdir(parents=True, exist_ok=True)
            sweep(root)
            folder, lock = _claim(root, f"{_host_prefix()}{_store_id(store)}-")
    except OSError as error:
        raise EnvironmentLacking(
            f"ray.scratch {root} on host {socket.gethostname()}: {error.strerror}; "
            "expected a folder on a local disk that this user can write to"
        ) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        os.close(lock)  # last: until then nobody else deletes


def sweep(root: Path, store: Path | None = None, wait_s: float = 0.0) -> None:
    """Delete this user's folders of this host that no living worker holds.

    store: wait up to `wait_s` seconds for the workers of this store, which have been told to end.
    """
    deadline = time.monotonic() + wait_s
    mine = "" if store is None else _store_id(store)
    while True:
        held = [path.name for path in sorted(root.glob(f"{_host_prefix()}*")) if not _delete_if_free(path)]
        if time.monotonic() >= deadline or not any(mine in name for name in held):
            return
        time.sleep(_POLL_S)


def bring_home(shards: Sequence[FinishedShard], folder: Path) -> tuple[FinishedShard, ...]:
    """Copy finished shards' files into `folder` and force them to the disk: all of them, or none is left there.

    Raises StoppedEarly on a full disk, RunFailed where the local disk gives back other bytes than were written.
    """
    with disk_full_stops(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as undo:
        home = [
            replace(shard, files=tuple(_copy(file, folder / file.scratch.name, undo) for file in shard.files))
            for shard in shards
        ]
        undo.pop_all()
    return tuple(home)


def _copy(file: FinishedFile, target: Path, undo: ExitStack) -> FinishedFile:
    undo.callback(target.unlink, missing_ok=True)
    digest = xxhash.xxh3_128()
    with disk_full_stops(target), file.scratch.open("rb") as source, target.open("wb") as copy:
        while block := source.read(_BLOCK):
            digest.update(block)
            copy.write(block)
        copy.flush()
        os.fsync(copy.fileno())
    if digest.hexdigest() != file.entry.xxh3:
        raise RunFailed(
            f"{file.scratch} on host {socket.gethostname()} reads other bytes than were written: that disk is not to "
            "be trusted; nothing of it was committed, give another ray.scratch"
        )
    return replace(file, scratch=target)


def _claim(root: Path, prefix: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # another worker took the folder for a dead one's before it was locked
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            os.close(lock)
            folder.rmdir()
            raise
        if folder.exists():
            return folder, lock
        os.close(lock)


def _delete_if_free(folder: Path) -> bool:
    """Delete a folder whose lock is free. True when nobody of ours is in it, deleted or not."""
    try:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return True
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder.exists():
            shutil.rmtree(folder)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def _host_prefix() -> str:
    """Of this host only: a folder that several hosts share may not carry locks from one to another."""
    return f"clipmill-{hash_bytes(socket.gethostname().encode())[:8]}-"


def _store_id(store: Path) -> str:
    return hash_bytes(os.fsencode(store))[:12]
