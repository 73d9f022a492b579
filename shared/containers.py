"""The two file formats of a shard's rows: `.npy` and contiguous HDF5. Same payload, same reader.

In progress both can be followed by another process: the `.npy` grows behind a header that is set right at the end, the
HDF5 file is an extendable, chunked SWMR dataset that `finish` rewrites contiguous (HDF5 cannot be both).
"""

from __future__ import annotations

import errno
import math
import os
import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import h5py
import numpy as np
from numpy.lib import format as npy_format

from shared.errors import DamageFound
from shared.mapping import map_file
from shared.schema import Container, DType
from shared.store_files import REPAIR, open_file, stat_file, unreadable

DATASET = "features"
# A fixed version of the HDF5 file format: "latest" changes with the library, and with it the bytes and who can read
# them.
_HDF5_FORMAT = ("v110", "v110")
NPY_HEADER_BYTES = 128
_COPY_ROWS = 4096


class RowFile(Protocol):
    """A shard's row file being written. `growing`: the file that another process can follow until `finish`."""

    growing: Path

    def append(self, rows: np.ndarray) -> None: ...

    def truncate(self, rows: int) -> None:
        """Keep the first `rows` rows: what was appended of a video that then failed is dropped."""
        ...

    def finish(self) -> Path:
        """Close, fsync and return the finished file."""
        ...

    def discard(self) -> None:
        """Close and delete what was written: an open handle would hold the space that a full disk lacks."""
        ...


def create_row_file(container: Container, path: Path, row_shape: tuple[int, ...], dtype: DType) -> RowFile:
    """Start a row file; `path` has no extension yet."""
    kinds: dict[Container, type[NpyRowFile] | type[Hdf5RowFile]] = {"npy": NpyRowFile, "h5": Hdf5RowFile}
    return kinds[container](path, row_shape, np.dtype(dtype))


class NpyRowFile:
    """A `.npy` whose header is written again, with the number of rows, at the end."""

    def __init__(self, path: Path, row_shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._path = self.growing = path.with_name(path.name + ".npy")
        self._row_shape = row_shape
        self._dtype = dtype
        self._rows = 0
        header = npy_header((0, *row_shape), dtype)
        self._file = self._path.open("wb")
        self._file.write(header)

    def append(self, rows: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(rows).data)
        self._file.flush()
        self._rows += len(rows)

    def truncate(self, rows: int) -> None:
        self._rows = rows
        self._file.truncate(NPY_HEADER_BYTES + rows * math.prod(self._row_shape) * self._dtype.itemsize)
        self._file.seek(0, os.SEEK_END)

    def finish(self) -> Path:
        self._file.seek(0)
        self._file.write(npy_header((self._rows, *self._row_shape), self._dtype))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._path

    def discard(self) -> None:
        self._path.unlink(missing_ok=True)
        self._file.close()


class Hdf5RowFile:
    """Chunked and SWMR while it grows, rewritten as one contiguous dataset at the end."""

    def __init__(self, path: Path, row_shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._path = path.with_name(path.name + ".h5")
        self.growing = path.with_name(path.name + ".growing.h5")
        chunk_rows = max(1, 65536 // max(1, math.prod(row_shape) * dtype.itemsize))
        # "x" refuses a file that exists: opening one that is in use with "w" would truncate it first.
        self._growing = h5py.File(self.growing, "x", libver=_HDF5_FORMAT)
        with _let_go_on_error(self._growing):
            self._dataset = self._growing.create_dataset(
                DATASET, (0, *row_shape), dtype, maxshape=(None, *row_shape), chunks=(chunk_rows, *row_shape)
            )
            self._growing.swmr_mode = True

    def append(self, rows: np.ndarray) -> None:
        with _let_go_on_error(self._growing):
            start = len(self._dataset)
            self._dataset.resize(start + len(rows), axis=0)
            self._dataset[start:] = rows
            self._dataset.flush()

    def truncate(self, rows: int) -> None:
        with _let_go_on_error(self._growing):
            self._dataset.resize(rows, axis=0)
            self._dataset.flush()

    def finish(self) -> Path:
        file = h5py.File(self._path, "x", libver=_HDF5_FORMAT)
        with _let_go_on_error(file), _let_go_on_error(self._growing):
            whole = file.create_dataset(DATASET, self._dataset.shape, self._dataset.dtype)
            for start in range(0, len(whole), _COPY_ROWS):
                whole[start : start + _COPY_ROWS] = self._dataset[start : start + _COPY_ROWS]
            file.flush()
            file.close()
            self._growing.close()
        self.growing.unlink()
        with self._path.open("rb") as written:
            os.fsync(written.fileno())
        return self._path

    def discard(self) -> None:
        _let_go(self._growing)
        for path in (self.growing, self._path):
            path.unlink(missing_ok=True)


@contextmanager
def _let_go_on_error(file: h5py.File) -> Iterator[None]:
    """Close a file that cannot be written, and raise OSError with the system's own number, which HDF5 only prints."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        _let_go(file)
        number = re.search(r"errno = (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def _let_go(file: h5py.File) -> None:
    """Close a file whose content is lost.

    HDF5 keeps what it could not write, tries again when closed and at exit, and crashes the process on a disk that is
    still full. So its descriptor is pointed at memory before.
    """
    if file:
        memory = os.memfd_create("discarded")
        os.dup2(memory, file.id.get_vfd_handle(), inheritable=False)
        os.close(memory)
        file.close()


def map_rows(container: Container, path: Path, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Map a finished shard's rows read-only, after checking that the file really holds them.

    shape: (rows, *row_shape) as the shard's index says. Raises DamageFound naming the file when header, shape,
    dtype or size disagree: reading past the end of a shortened mapping would kill the process.
    """
    offset = row_offset(container, path, shape, dtype)
    return _mapped(path, offset, shape, np.dtype(dtype))


def row_offset(container: Container, path: Path, shape: tuple[int, ...], dtype: DType, remedy: str = REPAIR) -> int:
    """Where in a finished shard's file the rows begin, in bytes, after it was seen that they are there.

    remedy: what a message says is to be done about damage. Raises DamageFound as `map_rows` does, StoreError where the
    file may be whole and cannot be read.
    """
    expected = np.dtype(dtype)
    find = _npy_offset if container == "npy" else _hdf5_offset
    offset = find(path, shape, expected, remedy)
    _require_size(path, offset, shape, expected, remedy)
    return offset


def map_array(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Map a `.npy` file of the store read-only. Raises DamageFound naming it when it is not what is expected.

    Its 128 bytes of header are known beforehand, so they are compared and not parsed: a flipped bit in their length
    would shift every value, and NumPy's parser raises half a dozen kinds of errors.
    """
    offset = _npy_offset(path, shape, dtype, REPAIR)
    _require_size(path, offset, shape, dtype, REPAIR)
    return _mapped(path, offset, shape, dtype)


def _npy_offset(path: Path, shape: tuple[int, ...], dtype: np.dtype, remedy: str) -> int:
    try:
        with os.fdopen(open_file(path), "rb") as file:
            header = file.read(NPY_HEADER_BYTES)
    except OSError as error:
        raise unreadable(path, error, remedy) from None
    if header != npy_header(shape, dtype):
        raise DamageFound(f"{path} does not have the npy header of {dtype}{shape}; {remedy}")
    return NPY_HEADER_BYTES


def npy_header(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    """The 128 bytes before the values: NumPy format 1.0 (numpy.lib.format) with room for a shape that is set last."""
    text = f"{{'descr': {npy_format.dtype_to_descr(dtype)!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    room = NPY_HEADER_BYTES - len(npy_format.MAGIC_PREFIX) - 2 - 2
    if len(text) >= room:
        raise ValueError(f"the npy header of shape {shape} does not fit into {NPY_HEADER_BYTES} bytes")
    header = text.ljust(room - 1).encode("latin1") + b"\n"
    return npy_format.magic(1, 0) + struct.pack("<H", len(header)) + header


def _require_size(path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype, remedy: str) -> None:
    need = math.prod(shape) * dtype.itemsize
    try:
        have = stat_file(path).st_size - offset
    except OSError as error:
        raise unreadable(path, error, remedy) from None
    if have < need:
        raise DamageFound(f"{path} holds {have} bytes of rows, expected {need}: the file was cut; {remedy}")


def _mapped(path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    size = math.prod(shape) * dtype.itemsize
    try:
        flat = map_file(path, offset, size)
    except OSError as error:
        warnings.warn(f"{path} cannot be mapped ({error.strerror}): {size} bytes of it are in memory now", stacklevel=3)
        flat = np.fromfile(path, np.uint8, size, offset=offset)
        flat.flags.writeable = False
    return flat.view(dtype).reshape(shape)


def _hdf5_offset(path: Path, shape: tuple[int, ...], dtype: np.dtype, remedy: str) -> int:
    try:
        os.close(open_file(path))
    except OSError as error:
        raise unreadable(path, error, remedy) from None
    try:
        with h5py.File(path, "r") as file:
            dataset = file[DATASET]
            if not isinstance(dataset, h5py.Dataset):
                raise DamageFound(f"{path} holds a group {DATASET!r}, expected a dataset; {remedy}")
            if dataset.shape != shape or dataset.dtype != dtype:
                found = f"{dataset.dtype}{dataset.shape}"
                raise DamageFound(f"{path} holds {found}, its index says {dtype}{shape}; {remedy}")
            offset: int | None = dataset.id.get_offset()
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:  # what h5py makes of damaged metadata
        if "unable to lock file" in str(error):
            raise unreadable(path, OSError(errno.EAGAIN, "it is locked"), remedy) from None
        raise DamageFound(f"{path} is not an HDF5 file with a dataset {DATASET!r}: {error}; {remedy}") from None
    if offset is None and 0 not in shape:
        raise DamageFound(f"{path} is chunked, expected one contiguous dataset; {remedy}")
    return offset or 0
