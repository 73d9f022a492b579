"""Files of a store as the system gives them: only regular ones are opened, and a refusal becomes an error for people.

A named pipe in the place of a file would hold its reader for ever, so a file is looked at before it is opened.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from shared.errors import ClipmillError, DamageFound, StoreError

# What to do about damage: of rows and captions; of a manifest set, which can be made again from what the store keeps;
# of a copy of row files.
REPAIR = "run `verify`, then `repair`"
MAKE_SET = "run `verify`, then `python -m preprocess manifests CONFIG`"
COPY = "it is a copy: delete it and start again, which makes it anew; if that does not help, run `verify` on the store"
_MISSING = (errno.ENOENT, errno.ENOTDIR)
_DENIED = (errno.EACCES, errno.EPERM)
_LOCKED = (errno.EAGAIN, errno.ENOLCK)
# What a changed folder or a failing disk says of a file. Anything else (a right that lacks, a lock, too many open
# files, a server that is away) says nothing about its bytes.
_DAMAGE = (*_MISSING, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EIO, errno.EBADMSG, errno.EUCLEAN)
_KINDS = {
    stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"
}  # fmt: skip


class NotAFileError(OSError):
    """Something else has the name of a file. strerror: what."""


def stat_file(path: Path) -> os.stat_result:
    """What the system says of a regular file, symbolic links followed. Raises OSError, for a folder or pipe, too."""
    return _regular(path, os.stat(path))  # noqa: PTH116  (half the time of Path.stat)


def _regular(path: Path, status: os.stat_result) -> os.stat_result:
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFDIR:
        raise NotAFileError(errno.EISDIR, "a folder has its name", str(path))
    if kind != stat.S_IFREG:
        raise NotAFileError(errno.ENXIO, f"{_KINDS.get(kind, 'something else')} has its name", str(path))
    return status


def open_file(path: Path) -> int:
    """Open a regular file for reading; returns the descriptor. Raises OSError."""
    stat_file(path)
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def open_again(path: Path) -> int:
    """The same in half the time, for a file that was looked at before: a pipe that has its name now is opened, not
    waited for, and refused. Raises OSError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        stat_file(path)  # a socket cannot be opened, and should be called by its name
        raise
    try:
        _regular(path, os.fstat(descriptor))
    except NotAFileError:
        os.close(descriptor)
        raise
    return descriptor


def read_file(path: Path) -> bytes:
    """The content of a regular file. Raises OSError."""
    stat_file(path)
    return path.read_bytes()


def is_damage(error: OSError) -> bool:
    """Whether an error shows that a file is not what was written; else it may well be whole."""
    return error.errno in _DAMAGE


def state_of(error: OSError) -> str:
    """What a file is, in the words of people, to stand after its name and a colon."""
    if error.errno in _MISSING:
        return "missing"
    if isinstance(error, NotAFileError):
        return f"no file: {error.strerror}"
    return f"cannot be read: {error.strerror or error}"


def unreadable(path: Path, error: OSError, remedy: str = REPAIR) -> ClipmillError:
    """The error to raise for a file of a store that cannot be opened or read.

    remedy: what to do about damage. DamageFound where the error shows damage; StoreError where the file may be whole
    and something else is to be done, or where the store was changed since it was opened and needs the file no more.
    """
    if error.errno in _MISSING and _given_up(path):
        return StoreError(
            f"{path} is gone because the store was changed while it was in use: start again with the store as it is"
        )
    state = f"{path} {state_of(error)}"
    if error.errno in _MISSING or isinstance(error, NotAFileError):
        state = f"{path} is {state_of(error)}"
    if is_damage(error):
        return DamageFound(f"{state}; {remedy}")
    if error.errno in _DENIED:
        advice = "it may well be whole: let this user read it, and enter the folders above it"
    elif error.errno in _LOCKED:
        advice = "another program may be changing it: let that end, then run this again"
    else:
        advice = "that is no sign of damage: remove the cause, then run this again"
    return StoreError(f"{state}; {advice}")


def _given_up(path: Path) -> bool:
    """Whether the root of the store that a file is in, as it is now, has no shard or set that the file is of."""
    from shared.store import ROOT, open_store, stands_on  # `store` builds on this module

    for folder in path.parents:
        if os.path.lexists(folder / ROOT):
            try:
                return not stands_on(open_store(folder).root, path.relative_to(folder).as_posix())
            except ClipmillError:
                return False
    return False
