"""The tables of a manifest set as bytes: rows are cut out, put together and renumbered by the block, never parsed.

A set of HowTo100M's size has 136 million captions; a takedown of one video must not read each of them in Python.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from shared import manifest_writer
from shared.atomic import disk_full_stops, fsync_file
from shared.errors import DamageFound
from shared.manifest_set import ManifestSet

_BLOCK_BYTES = 1 << 22
_BLOCK_ROWS = 1 << 15
_LF, _QUOTE, _COMMA, _SPACE, _ZERO = b'\n",\x200'


@dataclass(frozen=True)
class RawRows:
    """Rows of a CSV. data_N: uint8, their bytes; ends_R: int64, where each row ends, its LF included."""

    data_N: np.ndarray
    ends_R: np.ndarray

    def __len__(self) -> int:
        return len(self.ends_R)

    def cut(self, first: int, last: int) -> RawRows:
        """Rows [first, last)."""
        start = int(self.ends_R[first - 1]) if first else 0
        end = int(self.ends_R[last - 1]) if last else 0
        return RawRows(self.data_N[start : max(start, end)], self.ends_R[first:last] - start)

    def begins_with(self, field: bytes) -> bool:
        """Whether the first row's first field is this one, as `csv_field` gives it."""
        return bytes(self.data_N[: len(field) + 1]) == field + b","


class RawTable:
    """A table through all its parts. Raises DamageFound where a part does not hold the rows that manifest.json says."""

    def __init__(self, manifest: ManifestSet, table: str) -> None:
        self._manifest, self._files = manifest, manifest.info.part_files(table)
        self._starts = np.concatenate([[0], np.cumsum([manifest.info.parts[file] for file in self._files])]).astype(int)
        self._open: tuple[int, RawRows] | None = None

    def __len__(self) -> int:
        return int(self._starts[-1])

    def rows(self, first: int, last: int) -> Iterator[RawRows]:
        """Rows [first, last) of the table, in a piece for each part that they stand in."""
        while first < last:
            number = int(np.searchsorted(self._starts, first, side="right")) - 1
            start, end = int(self._starts[number]), int(self._starts[number + 1])
            yield self._part(number).cut(first - start, min(last, end) - start)
            first = end

    def _part(self, number: int) -> RawRows:
        if self._open is None or self._open[0] != number:
            file = self._files[number]
            data_N = np.asarray(np.memmap(self._manifest.checked(file), np.uint8, "r"))
            ends_R = row_ends(data_N)
            if len(ends_R) != self._manifest.info.parts[file] + 1 or ends_R[-1] != len(data_N):
                raise DamageFound(f"{self._manifest.path / file} does not hold the rows that manifest.json says")
            self._open = number, RawRows(data_N[ends_R[0] :], ends_R[1:] - ends_R[0])
        return self._open[1]


class RawParts:
    """A table being written, in parts like those of `manifest_writer.CsvParts`, from rows that are bytes already."""

    def __init__(self, directory: Path, name: str, columns: Sequence[str]) -> None:
        self._directory, self._name, self._header = directory, name, ",".join(columns).encode() + b"\n"
        self._parts: list[tuple[Path, int]] = []
        self._rows = 0
        self._open_part()

    def add(self, rows: RawRows) -> None:
        """Raises StoppedEarly on a full disk."""
        done = 0
        while done < len(rows):
            if self._rows == manifest_writer.PART_ROWS:
                self._close_part()
                self._open_part()
            some = rows.cut(done, min(len(rows), done + manifest_writer.PART_ROWS - self._rows))
            with disk_full_stops(self._directory):
                self._file.write(some.data_N.data)
            self._rows += len(some)
            done += len(some)

    def finish(self) -> dict[str, int]:
        """Close and fsync; the rows of every part."""
        self._close_part()
        return {path.name: rows for path, rows in self._parts}

    def _open_part(self) -> None:
        number = len(self._parts)
        self._path = self._directory / (f"{self._name}.csv" if number == 0 else f"{self._name}.{number:05d}.csv")
        with disk_full_stops(self._directory):
            self._file: BinaryIO = self._path.open("wb")
            self._file.write(self._header)
        self._rows = 0

    def _close_part(self) -> None:
        with disk_full_stops(self._directory):
            self._file.close()
            fsync_file(self._path)
        self._parts.append((self._path, self._rows))


def row_ends(data_N: np.ndarray) -> np.ndarray:
    """int64: where each row of a CSV ends: after an LF outside of quotes (a doubled quote leaves and enters again)."""
    ends, inside = [np.empty(0, np.int64)], False
    for start in range(0, len(data_N), _BLOCK_BYTES):
        block = data_N[start : start + _BLOCK_BYTES]
        quoted = np.logical_xor.accumulate(block == _QUOTE) ^ inside
        ends.append(np.flatnonzero((block == _LF) & ~quoted) + start + 1)
        inside = bool(quoted[-1])
    return np.concatenate(ends)


def renumbered(rows: RawRows, shift: int) -> Iterator[RawRows]:
    """Rows whose last field is a list of numbers separated by spaces, each `shift` greater."""
    for first in range(0, len(rows), _BLOCK_ROWS):
        some = rows.cut(first, min(len(rows), first + _BLOCK_ROWS))
        yield _shifted(some, shift) if shift else some


def _shifted(rows: RawRows, shift: int) -> RawRows:
    data_N, ends_R = rows.data_N, rows.ends_R
    starts_R = np.concatenate([[0], ends_R[:-1]])
    comma_M = np.flatnonzero(data_N == _COMMA)
    fields_R = comma_M[np.searchsorted(comma_M, ends_R) - 1] + 1  # where the last field begins
    edge_N = np.zeros(len(data_N) + 1, np.int8)
    edge_N[fields_R] += 1  # fields and ends are never at one place: an LF stands between
    edge_N[ends_R] -= 1
    spaces = np.concatenate([[0], np.cumsum(data_N == _SPACE)])
    count_R = np.where(ends_R - fields_R > 1, spaces[ends_R] - spaces[fields_R] + 1, 0)
    if not count_R.any():
        return rows  # NumPy reads a number from nothing
    numbers_M = np.fromstring(bytes(data_N[np.cumsum(edge_N, dtype=np.int8)[:-1] > 0]), np.int64, sep=" ") + shift
    return _written(data_N, starts_R, fields_R, numbers_M, count_R)


def _written(
    data_N: np.ndarray, starts_R: np.ndarray, fields_R: np.ndarray, number_M: np.ndarray, count_R: np.ndarray
) -> RawRows:
    """Rows of what stands before their last field, and of numbers, whose digits are put in place one after another."""
    digits_M = np.searchsorted(10 ** np.arange(1, 19), number_M, side="right") + 1
    after_M = np.concatenate([[0], np.cumsum(digits_M + 1)])  # each number is followed by a space, or the LF
    last_R = np.cumsum(count_R)
    prefix_R = fields_R - starts_R
    size_R = prefix_R + after_M[last_R] - after_M[last_R - count_R] + (count_R == 0)
    ends_R = np.cumsum(size_R)
    out_N = np.full(int(ends_R[-1]), _SPACE, np.uint8)
    place = np.arange(int(prefix_R.sum())) - np.repeat(np.cumsum(prefix_R) - prefix_R, prefix_R)
    out_N[place + np.repeat(ends_R - size_R, prefix_R)] = data_N[place + np.repeat(starts_R, prefix_R)]
    end_M = np.repeat(ends_R - size_R + prefix_R - after_M[last_R - count_R], count_R) + after_M[1:] - 1
    rest_M = number_M.copy()
    for position in range(1, int(digits_M.max(initial=0)) + 1):
        reach_M = digits_M >= position
        out_N[end_M[reach_M] - position] = _ZERO + rest_M[reach_M] % 10
        rest_M //= 10
    out_N[ends_R - 1] = _LF
    return RawRows(out_N, ends_R)


def csv_field(text: str) -> bytes:
    """A text as the CSVs have it, quoted where it must be."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow([text, ""])
    return line.getvalue().removesuffix(",\r\n").encode()
