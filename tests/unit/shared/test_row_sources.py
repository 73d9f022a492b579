"""Files that are cut while they are in use: an error that names them, never a dead process, never a wrong byte."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from shared import row_sources
from shared.containers import create_row_file
from shared.errors import DamageFound, EnvironmentLacking
from shared.row_sources import FileRows, MappedRows, ShardRows, row_source

BOTH = pytest.mark.parametrize("container", ["npy", "h5"])
MAPPINGS = pytest.mark.parametrize("mapping", ["auto", "mmap", "pread"])
# The last page of the file of so many rows holds more than one of them.
ROWS, DIM = 330, 24
DESCRIPTORS = Path("/proc/self/fd")


def shard(
    folder: Path, container: str, number: int = 0, rows: np.ndarray | None = None
) -> tuple[ShardRows, np.ndarray]:
    if rows is None:
        rows = np.random.RandomState(number).randn(ROWS, DIM).astype(np.float32)
    file = create_row_file(container, folder / f"{container}{number}", (DIM,), "float32")
    file.append(rows)
    return ShardRows(file.finish(), container, rows.shape, "float32"), rows


def read(source, shard_N, first_N, rows_N):
    """Runs of rows one after another."""
    shard_N, first_N, rows_N = (np.array(values, np.int64) for values in (shard_N, first_N, rows_N))
    out = np.empty((int(rows_N.sum()), DIM), np.float32)
    at_N = np.cumsum(rows_N) - rows_N
    size = DIM * 4
    source.copy(shard_N, first_N * size, rows_N * size, out.reshape(-1).view(np.uint8), at_N * size)
    return out


@BOTH
@MAPPINGS
def test_pieces_of_many_shards(tmp_path, container, mapping):
    shards, rows = zip(*(shard(tmp_path, container, number) for number in range(4)), strict=True)
    source = row_source(shards, mapping)
    draw = np.random.RandomState(0)
    count = 3000  # more than one call of the system takes
    shard_N, first_N = draw.randint(0, 4, count), draw.randint(0, ROWS - 5, count)
    rows_N = draw.randint(1, 6, count)
    expected = np.concatenate(
        [rows[s][first : first + n] for s, first, n in zip(shard_N, first_N, rows_N, strict=True)]
    )
    np.testing.assert_array_equal(read(source, shard_N, first_N, rows_N), expected)


@MAPPINGS
def test_no_descriptor_is_kept(tmp_path, mapping):
    shards = [shard(tmp_path, container, number)[0] for container in ("npy", "h5") for number in range(10)]
    source = row_source(shards, mapping)
    before = sorted(DESCRIPTORS.iterdir())
    read(source, range(20), [0] * 20, [3] * 20)
    assert sorted(DESCRIPTORS.iterdir()) == before


def cuts(size: int) -> list[int]:
    """New sizes of a file: all over it, at the borders of its pages and just beside them, and near its end."""
    near = [border + step for border in range(0, size, 4096) for step in (-1, 0, 1)]
    return sorted({*range(0, size, 1511), *near, *range(size - 130, size)} & set(range(size)), reverse=True)


@BOTH
@MAPPINGS
def test_a_file_cut_under_a_reader_gives_its_bytes_or_an_error(tmp_path, container, mapping):
    file, rows = shard(tmp_path, container)
    other, other_rows = shard(tmp_path, container, 1)
    source = row_source([file, other], mapping)
    read(source, [0], [0], [ROWS])
    refused = given = 0
    whole = file.path.stat().st_size
    for size in cuts(whole):
        os.truncate(file.path, size)
        for first, count in ((0, 1), (ROWS // 2, 20), (ROWS - 60, 20), (ROWS - 1, 1)):
            try:
                found = read(source, [1, 0], [5, first], [2, count])
            except DamageFound as error:
                refused += f"{file.path} was shortened while it was being read" in str(error)
                continue
            np.testing.assert_array_equal(found[2:], rows[first : first + count], err_msg=f"cut to {size} bytes")
            np.testing.assert_array_equal(found[:2], other_rows[5:7])
            given += 1
    assert refused > 100
    assert refused + given == 4 * len(cuts(whole))
    np.testing.assert_array_equal(read(source, [1], [0], [ROWS]), other_rows)


@BOTH
def test_rows_taken_from_memory_of_a_cut_file_are_refused(tmp_path, container):
    """What can be seen before and after; what happens in between would kill, and is for who asked for it."""
    (file, rows), (other, other_rows) = shard(tmp_path, container), shard(tmp_path, container, 1)
    source = row_source([file, other], "mmap")
    size = DIM * 4
    shard_N, row_N2 = np.array([0, 1, 0]), np.array([[0, 1], [7, 7], [ROWS - 1, 5]])

    def taken(shard_N):
        found = source.take(shard_N[:, None], row_N2[: len(shard_N)] * size, size)
        return found.view(np.float32).reshape(-1, 2, DIM)

    np.testing.assert_array_equal(taken(shard_N), [rows[[0, 1]], other_rows[[7, 7]], rows[[ROWS - 1, 5]]])
    whole = file.path.stat().st_size
    for lost in (1, 90, 4096, 3 * 4096, whole - 200, whole):
        os.truncate(file.path, whole - lost)
        with pytest.raises(DamageFound, match=f"{file.path.name} was shortened"):
            taken(shard_N)
    np.testing.assert_array_equal(taken(np.array([1])), [other_rows[[0, 1]]])


def test_a_file_cut_while_rows_are_taken_is_noticed(tmp_path, monkeypatch):
    """Within its last page, where a cut kills nobody and gives zeros."""
    file, _ = shard(tmp_path, "npy")
    source = row_source([file], "mmap")
    right = row_sources.all_memory

    def cut_meanwhile(size):
        os.truncate(file.path, file.path.stat().st_size - size)
        return right(size)

    source.take(np.array([0]), np.array([0]), 96)
    monkeypatch.setattr(row_sources, "all_memory", cut_meanwhile)
    with pytest.raises(DamageFound, match="shortened"):
        source.take(np.array([0]), np.array([(ROWS - 1) * 96]), 96)


def test_a_cut_in_zeros_changes_nothing_and_one_before_them_is_noticed(tmp_path):
    rows = np.random.RandomState(0).randn(ROWS, DIM).astype(np.float32)
    rows[-10:] = 0
    file, _ = shard(tmp_path, "npy", rows=rows)
    source = row_source([file], "mmap")
    read(source, [0], [0], [1])
    os.truncate(file.path, file.path.stat().st_size - 5 * DIM * 4)
    np.testing.assert_array_equal(read(source, [0], [ROWS - 20], [20]), rows[-20:])
    os.truncate(file.path, file.path.stat().st_size - 6 * DIM * 4)
    with pytest.raises(DamageFound, match="shortened"):
        read(source, [0], [ROWS - 20], [20])


@MAPPINGS
def test_deleted_files_stay_readable_only_where_they_are_mapped(tmp_path, mapping):
    file, rows = shard(tmp_path, "npy")
    source = row_source([file], mapping)
    read(source, [0], [0], [1])
    file.path.unlink()
    if mapping != "pread":
        np.testing.assert_array_equal(read(source, [0], [7], [2]), rows[7:9])
    else:
        with pytest.raises(DamageFound, match=f"{file.path.name} is missing; run `verify`"):
            read(source, [0], [7], [2])


@MAPPINGS
def test_a_reader_works_on_in_a_fork(tmp_path, mapping):
    file, rows = shard(tmp_path, "h5")
    source = row_source([file], mapping)
    read(source, [0], [0], [1])
    child = os.fork()
    if not child:
        os._exit(0 if (read(source, [0], [3], [4]) == rows[3:7]).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_the_system_cannot_do(tmp_path, monkeypatch):
    file, _ = shard(tmp_path, "npy")
    monkeypatch.setattr(row_sources, "can_copy_mapped", lambda: False)
    assert isinstance(row_source([file], "auto"), FileRows)
    with pytest.raises(EnvironmentLacking, match="process_vm_readv"):
        row_source([file], "mmap")


def test_a_file_system_that_cannot_map(tmp_path, monkeypatch):
    (good, good_rows), (bad, bad_rows) = (shard(tmp_path, "npy", number) for number in range(2))
    right = row_sources.map_file

    def refuses(path, offset, size):
        if path == bad.path:
            raise OSError(19, "No such device")
        return right(path, offset, size)

    monkeypatch.setattr(row_sources, "map_file", refuses)
    source = row_source([good, bad], "auto")
    assert isinstance(source, MappedRows)
    for _ in range(2):
        found = read(source, [0, 1, 0], [0, 1, 2], [2, 2, 2])
        np.testing.assert_array_equal(found, np.concatenate([good_rows[:2], bad_rows[1:3], good_rows[2:4]]))
    with pytest.raises(DamageFound, match="cannot be mapped: No such device"):
        read(row_source([bad], "mmap"), [0], [0], [1])
