"""Damaged files made again to the bit: what is known of a file, against the size and hash that the root says.

A bit that flipped is found by trying each one: the hash of 128 bits leaves no doubt. Headers and binary twins are
written again from what they repeat. What comes out is the file that was damaged, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from shared.atomic import write_new_file
from shared.containers import npy_header
from shared.fingerprint import hash_bytes
from shared.manifest_set import ManifestSet
from shared.manifest_writer import CAPTION_COLUMNS
from shared.schema import FileEntry
from shared.shard_writer import FinishedFile, npy_bytes

# The time to try all bits grows with the square of the length: seconds at this length.
MOST_BYTES = 1 << 16
_HEADER = 128


def unflipped(data: bytes, is_right: Callable[[bytearray], bool]) -> bytes | None:
    """`data` with the one bit flipped that makes it right; None where no bit does, or it is longer than MOST_BYTES."""
    if len(data) > MOST_BYTES:
        return None
    candidate = bytearray(data)
    for place in range(len(candidate)):
        for bit in range(8):
            candidate[place] ^= 1 << bit
            if is_right(candidate):
                return bytes(candidate)
            candidate[place] ^= 1 << bit
    return None


def mend_file(store: Path, path: str, entry: FileEntry, scratch: Path) -> FinishedFile | None:
    """A file of the store with its flipped bit put back, in scratch; None where that was not it."""
    data = _read(store / path)
    if data is None or len(data) != entry.bytes:
        return None
    return finished(
        scratch, path, entry, unflipped(data, lambda candidate: hash_bytes(memoryview(candidate)) == entry.xxh3)
    )


def mend_array(
    store: Path, path: str, entry: FileEntry, scratch: Path, shape: tuple[int, ...], dtype: np.dtype
) -> FinishedFile | None:
    """The same for a `.npy` of known shape, whose header is known with it."""
    data = _read(store / path)
    if data is None or len(data) != entry.bytes:
        return None
    return finished(scratch, path, entry, npy_header(shape, dtype) + data[_HEADER:]) or mend_file(
        store, path, entry, scratch
    )


def mend_twins(manifest: ManifestSet, folder: str, entries: dict[str, FileEntry], scratch: Path) -> list[FinishedFile]:
    """tokens.npy and offsets.npy of a set, made again from the token ids in its captions.csv.

    Raises DamageFound, ValueError for tables that cannot be read.
    """
    tokens = np.zeros(manifest.info.tokens, np.int32)
    offsets = np.zeros(manifest.info.captions + 1, np.int64)
    end = 0
    for number, row in enumerate(manifest.rows("captions", CAPTION_COLUMNS), start=1):
        ids = np.array(row["token_ids"].split(), np.int32)
        if number > manifest.info.captions or end + len(ids) > len(tokens):
            return []
        tokens[end : end + len(ids)] = ids
        end += len(ids)
        offsets[number] = end
    made = []
    for name, array in (("tokens.npy", tokens), ("offsets.npy", offsets)):
        path = f"{folder}/{name}"
        file = finished(scratch, path, entries[path], npy_bytes(array)) if path in entries else None
        made += [file] if file else []
    return made


def unflipped_seal(data: bytes) -> bytes | None:
    """A file that carries its own digest (the root, a run record) with its flipped bit put back, or None."""
    return unflipped(data, _digest_fits)


def _digest_fits(candidate: bytearray) -> bool:
    start = candidate.find(b'\n "digest": "')
    end = candidate.find(b"\n", start + 1)
    if start < 0 or end < 0:
        return False
    line = candidate[start + 1 : end].rstrip(b",")
    rest = candidate[:start] + candidate[end:]
    if not candidate[:end].endswith(b","):
        # As the last key, it leaves the comma of the line before.
        rest = candidate[:start].removesuffix(b",") + candidate[end:]
    return line == b' "digest": "' + hash_bytes(bytes(rest)).encode() + b'"'


def finished(scratch: Path, path: str, entry: FileEntry, data: bytes | None) -> FinishedFile | None:
    """`data` in scratch, if it is what the root says of `path`."""
    if data is None or len(data) != entry.bytes or hash_bytes(data) != entry.xxh3:
        return None
    scratch.mkdir(parents=True, exist_ok=True)
    made = scratch / path.replace("/", "-")
    write_new_file(made, data)
    return FinishedFile(made, path, entry)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:  # missing, or a disk that cannot read it any more: damage, like any other
        return None
