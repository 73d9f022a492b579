"""Mapped files without descriptors, and copies that stop where a file has ended."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from shared.mapping import CutCheck, can_copy_mapped, copy_mapped, map_file, sentinel

DESCRIPTORS = Path("/proc/self/fd")


def file_of(folder: Path, size: int) -> tuple[Path, bytes]:
    data = np.random.RandomState(size).bytes(size)
    path = folder / f"{size}"
    path.write_bytes(data)
    return path, data


def mappings_of(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def test_bytes_from_any_offset_and_nothing_is_left_behind(tmp_path):
    path, data = file_of(tmp_path, 10_000)
    before = len(list(DESCRIPTORS.iterdir()))
    parts = [map_file(path, offset, size) for offset, size in ((0, 10_000), (128, 9872), (9000, 1000), (5, 1))]
    assert len(list(DESCRIPTORS.iterdir())) == before
    assert [part.tobytes() for part in parts] == [data, data[128:], data[9000:], data[5:6]]
    view = parts[1][7:].view()
    del parts
    assert mappings_of(path) == 1, "a view holds its mapping"
    assert view.tobytes() == data[135:]
    del view
    assert mappings_of(path) == 0
    assert map_file(path, 3, 0).shape == (0,)


def test_mapped_bytes_cannot_be_written(tmp_path):
    mapped = map_file(file_of(tmp_path, 100)[0], 0, 100)
    with pytest.raises(ValueError, match="read-only"):
        mapped[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        mapped.flags.writeable = True


def test_what_cannot_be_mapped_is_the_systems_own_error(tmp_path):
    with pytest.raises(OSError, match="No such device"):
        map_file(tmp_path, 0, 10)
    with pytest.raises(FileNotFoundError):
        map_file(tmp_path / "none", 0, 10)
    with pytest.raises(OSError, match="No such device"):
        map_file(Path("/proc/self/status"), 0, 10)


def test_copies_stop_at_the_first_piece_whose_file_was_cut(tmp_path):
    assert can_copy_mapped()
    path, data = file_of(tmp_path, 40_000)
    mapped = map_file(path, 0, 40_000)
    out = np.zeros(4000, np.uint8)

    def copied(*starts):
        source_N = mapped.ctypes.data + np.array(starts)
        return copy_mapped(source_N, out.ctypes.data + 1000 * np.arange(len(starts)), np.full(len(starts), 1000))

    assert copied(39_000, 0, 20_500) == 3
    assert out[:3000].tobytes() == data[39_000:] + data[:1000] + data[20_500:21_500]
    os.truncate(path, 20_000)
    assert copied(0, 19_000, 39_000, 1) == 2
    assert copied(39_000) == 0
    # Half in the last page, half behind it.
    assert copied(0, 20_000) == 1


@pytest.mark.skipif(not can_copy_mapped(), reason="this system lets nobody copy mapped memory")
@pytest.mark.parametrize("left", [0, 1, 4096, 8191, 8192, 9999])
def test_a_cut_is_told_of_the_file_that_it_befell(tmp_path, left):
    (first, _), (second, _) = file_of(tmp_path, 5000), file_of(tmp_path, 10_000)
    arrays = map_file(first, 128, 4872), map_file(second, 0, 10_000), np.empty(0, np.uint8)
    check = CutCheck(arrays)
    assert check.first() is check.first() is None
    os.truncate(second, left)
    assert check.first() == 1
    os.truncate(first, 4096)
    assert check.first() == 0
    # Cut before anybody looked.
    assert sentinel(arrays[0]) is None
    assert CutCheck(arrays[:1]).first() == 0


def test_nothing_to_look_at_is_whole():
    assert CutCheck(()).first() is None
