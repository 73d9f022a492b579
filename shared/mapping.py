"""Files in memory: no descriptor is kept, and what was cut off a file is an error for the reader, not its death.

A page of a mapping that lies behind the end of its file kills whoever touches it (SIGBUS). So rows are not touched:
process_vm_readv(2), asked to read this very process, copies many pieces in one call and stops where it cannot go on.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)
# The most pieces in one call (IOV_MAX of Linux).
_PIECES = 1024
_IOVEC = 16
# NumPy takes address 0 for no array; nothing is ever mapped below this one.
MEMORY_START = 4096


def map_file(path: Path, offset: int, size: int) -> np.ndarray:
    """uint8 (size,): bytes of a file from `offset` on, read-only, mapped as long as the array or a view of it lives.

    Whoever calls has seen that the file is large enough. Raises OSError where it cannot be mapped.
    """
    if size == 0:
        return np.empty(0, np.uint8)
    length = offset + size
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        address = _mmap()(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    finally:
        os.close(descriptor)  # the mapping keeps the file; mmap.mmap would keep a copy of the descriptor, too
    if address == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    memory = (ctypes.c_ubyte * length).from_address(address)
    weakref.finalize(memory, _munmap(), address, length).atexit = False
    return np.frombuffer(memoryview(memory).cast("B").toreadonly(), np.uint8)[offset:]


def copy_mapped(source_N: np.ndarray, target_N: np.ndarray, bytes_N: np.ndarray) -> int:
    """Copy pieces of memory: from source_N to target_N (addresses), bytes_N each (at least 1). Shape (N,) integers.

    Returns how many were copied whole: N, or the number of the first that could not be, since its file was cut.
    Raises OSError where the system refuses the call itself.
    """
    # Two tables of struct iovec: a base and a length each.
    pieces_2N2 = np.empty((2, len(bytes_N), 2), np.int64)
    pieces_2N2[0, :, 0], pieces_2N2[1, :, 0] = target_N, source_N
    pieces_2N2[:, :, 1] = bytes_N
    target = pieces_2N2.ctypes.data
    source = target + len(bytes_N) * _IOVEC
    whole = 0
    while whole < len(bytes_N):
        count = min(_PIECES, len(bytes_N) - whole)
        done = _read(target + whole * _IOVEC, source + whole * _IOVEC, count)
        asked_N = bytes_N[whole : whole + count]
        if done != asked_N.sum():
            # One call moves at most 2 GiB, so a short one is asked again and has failed only when it gets nowhere.
            count = int(np.searchsorted(np.cumsum(asked_N), done, side="right"))
            if count == 0:
                return whole
        whole += count
    return whole


def sentinel(array: np.ndarray) -> tuple[int, int] | None:
    """Address and value of a byte of a mapped array that shows every cut of its file which changes what is read.

    A cut leaves whole pages away, which copying notices, and zeros in the page where it ends. So it is noticed by the
    last byte of the last page, unless that page is itself the one with the zeros: then by the last byte that is not
    zero, behind which there are only zeros anyway. array: contiguous, at least one byte. None where it is cut already.
    """
    begin, end = array.ctypes.data, array.ctypes.data + array.nbytes
    first = max(begin, (end - 1) // mmap.PAGESIZE * mmap.PAGESIZE)
    tail = np.empty(end - first, np.uint8)
    if not copy_mapped(*np.array([[first], [tail.ctypes.data], [len(tail)]])):
        return None
    filled = np.flatnonzero(tail)
    place = int(filled[-1]) if len(filled) else len(tail) - 1
    return first + place, int(tail[place])


class CutCheck:
    """Whether the files of some mapped arrays were cut since this was made; says nothing where memory cannot be copied.

    It cannot help whoever touches the arrays in the very moment of a cut.
    """

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self._arrays = [n for n, array in enumerate(arrays) if array.nbytes] if can_copy_mapped() else []
        known = [sentinel(arrays[n]) for n in self._arrays]
        self._value = bytes(0 if place is None else place[1] for place in known)
        # Two tables of struct iovec, as in `copy_mapped`; where the values go is added for each look.
        count = len(self._arrays)
        self._pieces_2N2 = np.ones((2, count, 2), np.int64)
        self._pieces_2N2[0, :, 0] = np.arange(count)
        self._pieces_2N2[1, :, 0] = [0 if place is None else place[0] for place in known]

    def first(self) -> int | None:
        """The number of the first array whose file was cut, or None."""
        count = len(self._arrays)
        now = ctypes.create_string_buffer(count)
        pieces_2N2 = self._pieces_2N2.copy()
        pieces_2N2[0, :, 0] += ctypes.addressof(now)
        target: int = pieces_2N2.ctypes.data
        done = _read(target, target + count * _IOVEC, count) if count else 0
        if now.raw[:done] == self._value:
            return None
        wrong = (n for n in range(count) if n >= done or now.raw[n] != self._value[n])
        return self._arrays[next(wrong)]


@functools.cache
def all_memory(size: int) -> np.ndarray:
    """void (2**48 - MEMORY_START - size,): the `size` bytes at every address of this process, from MEMORY_START on.

    For gathering pieces of many mappings in one call of NumPy. Nothing is allocated. Touching what is not mapped, or
    what lies behind the end of a file, kills the process.
    """
    return np.asarray(_Memory(size))


class _Memory:
    """numpy's array interface (version 3) of user space, read-only, a step of one byte between the elements."""

    def __init__(self, size: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (MEMORY_START, True),
            "typestr": f"|V{size}",
            "shape": ((1 << 48) - MEMORY_START - size,),
            "strides": (1,),
        }


def _read(target: int, source: int, pieces: int) -> int:
    # The process is asked for each time: a reader may have come here through a fork.
    done = int(_readv()(os.getpid(), target, pieces, source, pieces, 0))
    if done < 0 and ctypes.get_errno() != errno.EFAULT:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "process_vm_readv")
    return done


@functools.cache
def can_copy_mapped() -> bool:
    """Whether this system lets a process read its own memory through process_vm_readv (Linux does, most sandboxes)."""
    if not hasattr(_LIBC, "process_vm_readv"):
        return False
    from_1, to_1 = np.ones(1, np.uint8), np.zeros(1, np.uint8)
    try:
        copy_mapped(np.array([from_1.ctypes.data]), np.array([to_1.ctypes.data]), np.array([1]))
    except OSError:
        return False
    return bool(to_1[0])


@functools.cache
def _mmap() -> ctypes._NamedFuncPointer:
    call = _LIBC.mmap
    call.restype = ctypes.c_void_p
    call.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_ssize_t
    ]  # fmt: skip
    return call


@functools.cache
def _munmap() -> ctypes._NamedFuncPointer:
    call = _LIBC.munmap
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return call


@functools.cache
def _readv() -> ctypes._NamedFuncPointer:
    call = _LIBC.process_vm_readv
    call.restype = ctypes.c_ssize_t
    call.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong
    ]  # fmt: skip
    return call
