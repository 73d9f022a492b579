"""Arrays that are compiled once from files of a store, kept beside it, and mapped by every process that needs them.

A cache is no part of the store: it can be deleted at any time. It holds for its sources alone, which are known by the
hashes that the root has of them, and by size and time of change, which are looked at when it is opened. It carries a
hash of its own. One that is stale, foreign or damaged is compiled again. Clipmill
never writes into one: a new one takes its name, and who has mapped the old one keeps that. But the arrays are read as
memory, without the looks that rows and tokens get: a program that shortens the file itself, while it is in use, kills
its readers.

The file: the arrays, each at a multiple of 64 bytes; sealed JSON that says what they are; its length, 16 hex digits.
"""

from __future__ import annotations

import fcntl
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from shared.errors import DamageFound
from shared.fingerprint import fingerprint, hash_bytes, is_sealed, sealed_json
from shared.mapping import map_file
from shared.schema import FileEntry
from shared.store_files import stat_file, state_of

FOLDER = ".cache/index"
# Raised when the arrays that are compiled from the same files change.
_LAYOUT = 2
_ALIGN = 64
_SUFFIX = 16
# Below so many bytes of sources, reading them is faster than anyone can notice, and no file is left behind.
SMALLEST = 4 << 20

Arrays = Mapping[str, np.ndarray]


def cached_arrays(store: Path, name: str, sources: Mapping[str, FileEntry], build: Callable[[], Arrays]) -> Arrays:
    """What `build` makes of the files `sources` (paths below the store, as the root has them), mapped where it can be.

    build: reads the sources, which it checks against the root. Called where there is no cache that fits; processes
    that come meanwhile wait for the one that compiles. A store that cannot be written to has its caches in the user's
    own folder ($XDG_CACHE_HOME/clipmill); where that cannot be either, a warning says that each process holds the
    arrays itself. Arrays have one dimension. Raises what `build` raises.
    """
    if sum(entry.bytes for entry in sources.values()) < SMALLEST:
        return build()
    key = _key(name, sources)
    folders = _folders(store)
    for folder in folders:
        found = _open(folder / f"{name}.idx", key, store, sources)
        if found is not None:
            return found
    arrays: Arrays | None = None
    for folder in folders:
        path = folder / f"{name}.idx"
        try:
            with _alone(path):
                found = _open(path, key, store, sources)  # another process may have compiled it meanwhile
                if found is None:
                    arrays = arrays or build()
                    _write(path, key, _stamps(store, sources), arrays)
                    found = _open(path, key, store, sources)
        except OSError:
            continue  # read-only, full, or without locks: the next place
        if found is not None:
            return found
    warnings.warn(f"no index of {name} of {store} can be kept: each process compiles and holds its own", stacklevel=3)
    return arrays or build()


def drop_indexes(store: Path) -> None:
    """Delete what was compiled from a store that is being changed: names of removed videos must not stay in it."""
    for path in sorted((store / FOLDER).glob("*.idx")):
        with suppress(OSError):
            path.unlink()


def damaged_indexes(store: Path) -> list[tuple[str, str]]:
    """Path and what is wrong, for every cache that is not to the bit what was written. Stale ones are whole."""
    found = []
    for path in sorted((store / FOLDER).glob("*.idx")):
        try:
            _read(path)
        except PermissionError:
            continue  # of another user, who compiled it for himself
        except OSError as error:
            found.append((path.relative_to(store).as_posix(), state_of(error)))
        except DamageFound as error:
            found.append((path.relative_to(store).as_posix(), str(error)))
    return found


def _key(name: str, sources: Mapping[str, FileEntry]) -> str:
    return fingerprint([_LAYOUT, name, {path: entry.xxh3 for path, entry in sources.items()}])


def _folders(store: Path) -> list[Path]:
    """Where a cache may be, the best first. A user without a home has none of his own."""
    own = os.environ.get("XDG_CACHE_HOME")
    try:
        home = Path(own) if own else Path.home() / ".cache"
    except RuntimeError:
        return [store / FOLDER]
    return [store / FOLDER, home / "clipmill" / hash_bytes(os.fsencode(store.resolve()))]


def _stamps(store: Path, sources: Mapping[str, FileEntry]) -> dict[str, list[int]]:
    """Size and time of change (ns) of each source. Raises OSError."""
    stats = {path: (store / path).stat() for path in sources}
    return {path: [stat.st_size, stat.st_mtime_ns] for path, stat in stats.items()}


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock of a cache file. Raises OSError where there cannot be one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open(path: Path, key: str, store: Path, sources: Mapping[str, FileEntry]) -> Arrays | None:
    try:
        header, arrays = _read(path)
        fits = header["key"] == key and header["sources"] == _stamps(store, sources)
    except (DamageFound, OSError):
        return None  # missing, damaged or of files that are gone: compiled again, or `build` says what is wrong
    return arrays if fits else None


def _read(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a cache, every bit of which was checked. Raises DamageFound, OSError."""
    wrong = DamageFound(f"{path} is not to the bit what was compiled: delete it, it is made again when it is needed")
    try:
        whole = map_file(path, 0, stat_file(path).st_size)
        end = len(whole) - _SUFFIX
        length = int(whole[end:].tobytes(), 16)
        data = whole[end - length : end].tobytes()
        header = json.loads(data)
        sealed = isinstance(header, dict) and is_sealed(header, data) and whole[end:].tobytes() == b"%016x" % length
        if not sealed or header["xxh3"] != xxhash.xxh3_128_hexdigest(whole[: end - length].data):
            raise wrong
        arrays = {
            name: whole[start : start + count * np.dtype(dtype).itemsize].view(dtype)
            for name, (dtype, count, start) in header["arrays"].items()
        }
    except (ValueError, TypeError, KeyError, RecursionError):  # what was never written by `_write`
        raise wrong from None
    return header, arrays


def _write(path: Path, key: str, stamps: dict[str, list[int]], arrays: Arrays) -> None:
    """Write a cache under its lock. Raises OSError.

    Nothing is synced: what a power cut leaves of it does not have its hash.
    """
    places: dict[str, list[Any]] = {}
    offset, digest = 0, xxhash.xxh3_128()
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        for name, array in sorted(arrays.items()):
            padding = bytes(-array.nbytes % _ALIGN)
            places[name] = [array.dtype.str, len(array), offset]
            for part in (np.ascontiguousarray(array).view(np.uint8).data, padding):
                file.write(part)
                digest.update(part)
            offset += array.nbytes + len(padding)
        header = sealed_json({"key": key, "sources": stamps, "arrays": places, "xxh3": digest.hexdigest()})
        file.write(header + b"%016x" % len(header))
    temporary.replace(path)
