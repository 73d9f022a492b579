"""One writer at a time.

The lease is an advisory lock (flock) on `STORE/.lease`: the kernel drops it with its process, so a dead run never
blocks the next one. (A child that was forked without exec shares the lock: it must end, too.) The file's text names
the holder for the message that the second run gets.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.atomic import disk_full_stops
from shared.errors import StoreError
from shared.store_files import open_file, unreadable

_TRIES = 5  # `lease_holder` locks for a moment to see whether somebody writes, and is no reason to be refused
_PAUSE_S = 0.02


@contextmanager
def writer_lease(store: Path) -> Iterator[None]:
    """Hold the store's lease for the block. Raises StoreError naming the holder when another process has it."""
    path = store / ".lease"
    descriptor = _lock(path)
    try:
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "command": " ".join(sys.argv)}
        with disk_full_stops(path):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(holder).encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def lease_holder(store: Path) -> str | None:
    """Who is writing to the store now, for people; None when nobody is. Raises StoreError where nobody can tell."""
    try:
        descriptor = open_file(store / ".lease")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(store / ".lease", error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(descriptor)
    finally:
        os.close(descriptor)
    return None


def _lock(path: Path) -> int:
    tries = 0
    while True:
        try:
            with disk_full_stops(path):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"store {path.parent} cannot be written to: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read_holder(descriptor)
            os.close(descriptor)
            tries += 1
            if tries < _TRIES:
                time.sleep(_PAUSE_S)
                continue
            raise StoreError(
                f"store {path.parent} is being written by {holder}; wait for it, or stop it first"
            ) from None
        if _still_named(path, descriptor):
            return descriptor
        os.close(descriptor)  # the holder before us removed the file between our open and our lock


def _still_named(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read_holder(descriptor: int) -> str:
    text = os.pread(descriptor, 4096, 0).decode(errors="replace")
    try:
        holder = json.loads(text)
        return f"process {holder['pid']} on {holder['host']} ({holder['command']})"
    except (ValueError, KeyError, TypeError):
        return "another process"  # it holds the lock but has not written its name yet
