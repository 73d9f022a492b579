"""Damaged files made again to the bit: what is known of a file, against the size and hash that the root says.

A bit that flipped is found by trying each one: the hash of 128 bits leaves no doubt. Headers and binary twins are
written again from what they repeat. What comes out is the file that was damaged, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from shared.atomic import write_new_file
from shared.containers import npy_header
from shared.fingerprint import hash_bytes
from shared.manifest_set import ManifestSet
from shared.manifest_writer import CAPTION_COLUMNS
from shared.schema import FileEntry
from shared.shard_writer import FinishedFile, npy_bytes
from shared.store_files import read_file

# The time to try all bits grows with the square of the length: seconds at the first, two minutes at the second. That is
# for indexes: without one, the rows of up to 1,024 videos are lost.
MOST_BYTES, MOST_INDEX_BYTES = 1 << 16, 1 << 19
_HEADER = 128


def unflipped(data: bytes, is_right: Callable[[bytearray], bool], most: int = MOST_BYTES) -> bytes | None:
    """`data` with the one bit flipped that makes it right; None where none does, or it is longer than `most` bytes."""
    if len(data) > most:
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
    most = MOST_INDEX_BYTES if path.endswith(".json") else MOST_BYTES
    mended = unflipped(data, lambda candidate: hash_bytes(memoryview(candidate)) == entry.xxh3, most)
    return finished(scratch, path, entry, mended)


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
    """A file that carries its own digest (the root, a run record) with its flipped bit put back, or None.

    The bit is either in the line of the digest, which then says almost what the rest hashes to, or in the rest.
    """
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        if len(line) not in (len(_seal(b"")), len(_seal(b"")) + 1):
            continue
        # As the last key, the line leaves the comma of the line before.
        last = number == len(lines) - 3
        before = b"".join(part + b"\n" for part in lines[:number])
        rest = (before[:-2] + b"\n" if last else before) + b"\n".join(lines[number + 1 :])
        right = _seal(rest) if last else _seal(rest) + b","
        if _differs_by_a_bit(line, right):
            return before + right + b"\n" + b"\n".join(lines[number + 1 :])
        if line.startswith(b' "digest": "'):
            mended = unflipped(rest, partial(_is_sealed_by, line), MOST_INDEX_BYTES)
            if mended is not None:
                split = len(before) - last
                head = mended[: split - 1] + b",\n" if last else mended[:split]
                return head + line + b"\n" + mended[split:]
    return None


def _is_sealed_by(line: bytes, rest: bytearray) -> bool:
    return _seal(rest) == line.rstrip(b",")


def _seal(rest: bytes | bytearray) -> bytes:
    return b' "digest": "' + hash_bytes(memoryview(rest)).encode() + b'"'


def _differs_by_a_bit(one: bytes, other: bytes) -> bool:
    return len(one) == len(other) and sum((a ^ b).bit_count() for a, b in zip(one, other, strict=True)) == 1


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
        return read_file(path)
    except OSError:  # missing, or a disk that cannot read it any more: damage, like any other
        return None
