"""Where rows come from: mapped row files, or files that are opened and read. Both copy pieces of many shards at once.

Neither keeps a descriptor; neither has a state that a fork or a thread could break. A file that is shortened while it
is read, or was since it was opened, is DamageFound: never a dead process, never the zeros behind its end. Only `take`,
which reads mapped memory itself and is twice as fast, leaves a gap: it looks at files before and after, and a file that
is cut in between, within a fraction of a millisecond, kills the process.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from shared.containers import row_offset
from shared.errors import DamageFound, EnvironmentLacking
from shared.mapping import MEMORY_START, all_memory, can_copy_mapped, copy_mapped, map_file, sentinel
from shared.schema import Container, DType
from shared.store_files import REPAIR, open_again, unreadable

Mapping = Literal["auto", "mmap", "pread"]
# NumPy's arrays end at 2**63 bytes, and so does what `take` can address; larger pieces gain nothing anyway.
LARGEST_TAKEN = 1 << 14


@dataclass(frozen=True)
class ShardRows:
    """One shard's row file and what its index says of it. remedy: what to do where it is damaged, for messages."""

    path: Path
    container: Container
    shape: tuple[int, ...]
    dtype: DType
    remedy: str = REPAIR

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    @property
    def bytes(self) -> int:
        return self.shape[0] * self.row_bytes

    def offset(self) -> int:
        """Where the rows begin, after header and size were checked. Raises DamageFound, StoreError."""
        return row_offset(self.container, self.path, self.shape, self.dtype, self.remedy)

    def shortened(self) -> DamageFound:
        return DamageFound(
            f"{self.path} was shortened while it was being read: nothing of this read is used; {self.remedy}"
        )


class RowSource(Protocol):
    """Copies bytes of shards. Raises DamageFound naming the file that is missing, cut or not what its index says.

    Raises StoreError for one that may not be read, or that is gone because the store was changed.
    """

    def copy(
        self, shard_N: np.ndarray, start_N: np.ndarray, bytes_N: np.ndarray, out: np.ndarray, at_N: np.ndarray
    ) -> None:
        """out[at:at + bytes] = the bytes from `start` on of the rows of `shard`, for N pieces of at least one byte.

        All but `out` int64 (N,); start counts from the first row's first byte. out: uint8, contiguous, writable.
        """
        ...


def row_source(shards: Sequence[ShardRows], mapping: Mapping) -> RowSource:
    """`auto` maps where the system allows safe copies, else reads; `pread` reads; `mmap` maps, and offers `take`.

    Raises EnvironmentLacking for `mmap` where it does not.
    """
    if mapping == "pread" or (mapping == "auto" and not can_copy_mapped()):
        return FileRows(shards)
    if not can_copy_mapped():
        raise EnvironmentLacking(
            "mapping='mmap' needs process_vm_readv, which this system lacks or forbids: use 'auto' or 'pread'"
        )
    return MappedRows(shards, FileRows(shards)) if mapping == "auto" else MappedRows(shards, None, direct=True)


class MappedRows:
    """Shards that are mapped when first read. fallback: for shards on file systems that cannot map, None to insist.

    direct: whether whoever asked for this mapping accepts the gap of `take`.
    """

    def __init__(self, shards: Sequence[ShardRows], fallback: RowSource | None, *, direct: bool = False) -> None:
        self._shards, self._fallback, self.direct = shards, fallback, direct
        self._maps: dict[int, np.ndarray] = {}
        self._address_S = np.zeros(len(shards), np.int64)
        self._sentinel_S = np.zeros(len(shards), np.int64)
        self._value_S = np.zeros(len(shards), np.uint8)
        self._unmappable_S = np.zeros(len(shards), bool)
        self._all_mapped = self._any_unmappable = False

    def copy(
        self, shard_N: np.ndarray, start_N: np.ndarray, bytes_N: np.ndarray, out: np.ndarray, at_N: np.ndarray
    ) -> None:
        shards = self._mapped(shard_N)
        if self._fallback is not None and self._any_unmappable and self._unmappable_S[shards].any():
            other_N = self._unmappable_S[shard_N]
            self._fallback.copy(shard_N[other_N], start_N[other_N], bytes_N[other_N], out, at_N[other_N])
            own_N, shards = ~other_N, shards[~self._unmappable_S[shards]]
            shard_N, start_N, bytes_N, at_N = shard_N[own_N], start_N[own_N], bytes_N[own_N], at_N[own_N]
        self._copy_mapped(shards, shard_N, start_N, bytes_N, out, at_N)

    def take(self, shard_N: np.ndarray, start_N: np.ndarray, size: int) -> np.ndarray:
        """void: pieces of one size (at most LARGEST_TAKEN), in a new array of the shape that both broadcast to."""
        shards = self._mapped(shard_N)
        self._refuse_cut(shards)
        taken: np.ndarray = all_memory(size)[self._address_S[shard_N] + (start_N - MEMORY_START)]
        self._refuse_cut(shards)
        return taken

    def _refuse_cut(self, shards: np.ndarray) -> None:
        none = np.empty(0, np.int64)
        self._copy_mapped(shards, none, none, none, np.empty(0, np.uint8), none)

    def _mapped(self, shard_N: np.ndarray) -> np.ndarray:
        """The shards that are asked for, each once, mapped now unless they cannot be."""
        touched_S = np.zeros(len(self._shards), bool)
        touched_S[shard_N] = True
        shards = np.flatnonzero(touched_S)
        if not self._all_mapped:
            for shard in shards[self._address_S[shards] == 0].tolist():
                self._map(shard)
            self._all_mapped = bool(self._address_S.all())
        return shards

    def _copy_mapped(
        self,
        shards: np.ndarray,
        shard_N: np.ndarray,
        start_N: np.ndarray,
        bytes_N: np.ndarray,
        out: np.ndarray,
        at_N: np.ndarray,
    ) -> None:
        # After the rows, in the same order of copying, one byte of each shard that tells if its file was cut before.
        count, more = len(shard_N), len(shards)
        last = np.zeros(more, np.uint8)
        source_M, target_M, bytes_M = np.ones((3, count + more), np.int64)
        source_M[:count], source_M[count:] = self._address_S[shard_N] + start_N, self._sentinel_S[shards]
        target_M[:count], target_M[count:] = at_N + out.ctypes.data, np.arange(more) + last.ctypes.data
        bytes_M[:count] = bytes_N
        done = copy_mapped(source_M, target_M, bytes_M)
        if done < count + more:
            raise self._shards[np.concatenate([shard_N, shards])[done]].shortened()
        cut = np.flatnonzero(last != self._value_S[shards])
        if len(cut):
            raise self._shards[shards[cut[0]]].shortened()

    def _map(self, shard: int) -> None:
        if self._unmappable_S[shard]:
            return
        file = self._shards[shard]
        offset = file.offset()
        try:
            rows = map_file(file.path, offset, file.bytes)
        except OSError as error:
            if self._fallback is None:
                raise DamageFound(
                    f"{file.path} cannot be mapped: {error.strerror}; expected a file system that can, "
                    "else use mapping='auto' or 'pread'"
                ) from None
            self._unmappable_S[shard] = self._any_unmappable = True
            return
        # The first mapping stays when two threads map a shard at once: the other one's address may be in use by then.
        rows = self._maps.setdefault(shard, rows)
        known = sentinel(rows)
        if known is None:
            raise file.shortened()
        self._sentinel_S[shard], self._value_S[shard] = known
        self._address_S[shard] = rows.ctypes.data


class FileRows:
    """Shards that are opened for each read and read in pieces."""

    def __init__(self, shards: Sequence[ShardRows]) -> None:
        self._shards = shards
        self._offsets: dict[int, int] = {}

    def copy(
        self, shard_N: np.ndarray, start_N: np.ndarray, bytes_N: np.ndarray, out: np.ndarray, at_N: np.ndarray
    ) -> None:
        order_N = np.lexsort((start_N, shard_N))
        borders = np.flatnonzero(np.diff(shard_N[order_N], prepend=-1, append=-1)).tolist()
        memory = out.data
        for begin, end in pairwise(borders):
            pieces = order_N[begin:end]
            shard = int(shard_N[pieces[0]])
            self._read(shard, start_N[pieces].tolist(), bytes_N[pieces].tolist(), memory, at_N[pieces].tolist())

    def _read(self, shard: int, starts: list[int], sizes: list[int], memory: memoryview, places: list[int]) -> None:
        file = self._shards[shard]
        if shard not in self._offsets:
            self._offsets[shard] = file.offset()
        offset = self._offsets[shard]
        try:
            descriptor = open_again(file.path)
        except OSError as error:
            raise unreadable(file.path, error, file.remedy) from None
        try:
            for start, size, place in zip(starts, sizes, places, strict=True):
                _read_whole(descriptor, offset + start, memory[place : place + size], file)
        finally:
            os.close(descriptor)


def _read_whole(descriptor: int, start: int, part: memoryview, file: ShardRows) -> None:
    while part:
        try:
            done = os.preadv(descriptor, [part], start)
        except OSError as error:
            raise unreadable(file.path, error, file.remedy) from None
        if done == 0:
            raise file.shortened()
        part, start = part[done:], start + done
