"""One writer at a time, of a store as of a run folder.

The lease is an advisory lock (flock) on `FOLDER/.lease`: the kernel drops it with its process, so a dead run never
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.atomic import disk_full_stops
from shared.errors import RequestError, StoreError
from shared.store_files import open_file, unreadable

_TRIES = 15  # `lease_holder` locks for a moment to see whether somebody writes, and is no reason to be refused
_PAUSE_S = 0.02


@dataclass(frozen=True)
class Leased:
    """How people are told of a folder that somebody else has: `what` PATH is being `used` by ...; `advice`.

    lockless: whether a file system without locks is only warned of, since nobody else may be there anyway.
    """

    what: str
    used: str
    advice: str
    error: type[RequestError]
    lockless: bool = False


_STORE = Leased("store", "written", "wait for it, or stop it first", StoreError)


@contextmanager
def writer_lease(store: Path) -> Iterator[None]:
    """Hold the store's lease for the block. Raises StoreError naming the holder when another process has it."""
    with folder_lease(store, _STORE):
        yield


@contextmanager
def folder_lease(folder: Path, leased: Leased, job: str | None = None) -> Iterator[None]:
    """Hold a folder's lease for the block. job: written beside the holder's name, for `lease_job`.

    Raises the error of `leased` naming the holder when another process has it, or where there can be no lock.
    """
    path = folder / ".lease"
    descriptor = _lock(path, leased)
    try:
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "command": " ".join(sys.argv), "job": job}
        with disk_full_stops(path):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(holder).encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def lease_holder(folder: Path) -> str | None:
    """Who is writing to the folder now, for people; None when nobody is. Raises StoreError where nobody can tell."""
    holder = _holder(folder)
    return None if holder is None else _named(holder)


def lease_job(folder: Path) -> tuple[bool, str | None]:
    """Whether somebody has the folder's lease, and the job that was given with it. Raises as `lease_holder`."""
    holder = _holder(folder)
    return holder is not None, None if holder is None else holder.get("job")


def _holder(folder: Path) -> dict[str, Any] | None:
    """What the holder wrote, {} where that is nothing yet; None where nobody has the lease."""
    try:
        descriptor = open_file(folder / ".lease")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(folder / ".lease", error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(descriptor)
    except OSError as error:
        raise unreadable(folder / ".lease", error) from None
    finally:
        os.close(descriptor)
    return None


def _lock(path: Path, leased: Leased) -> int:
    tries = 0
    while True:
        try:
            with disk_full_stops(path):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise leased.error(f"{leased.what} {path.parent} cannot be written to: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _named(_read_holder(descriptor))
            os.close(descriptor)
            tries += 1
            if tries < _TRIES:
                time.sleep(_PAUSE_S)
                continue
            raise leased.error(
                f"{leased.what} {path.parent} is being {leased.used} by {holder}; {leased.advice}"
            ) from None
        except OSError as error:
            said = (
                f"{leased.what} {path.parent} cannot be locked: {error.strerror}, and two processes that write it at "
            )
            said += "once would damage it; put it on a file system with locks"
            if leased.lockless:
                print(f"warning: {said}, or see to it that there is one", file=sys.stderr, flush=True)
                return descriptor
            os.close(descriptor)
            raise leased.error(said) from None
        if _still_named(path, descriptor):
            return descriptor
        os.close(descriptor)  # the holder before us removed the file between our open and our lock


def _still_named(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read_holder(descriptor: int) -> dict[str, Any]:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0).decode(errors="replace"))
    except (ValueError, RecursionError):
        return {}  # it holds the lock but has not written its name yet
    return holder if isinstance(holder, dict) else {}


def _named(holder: dict[str, Any]) -> str:
    try:
        return f"process {holder['pid']} on {holder['host']} ({holder['command']})"
    except KeyError:
        return "another process"
