"""Row files in both formats: plain libraries read what is written, and what was cut is refused before mapping."""

from __future__ import annotations

import errno
import subprocess
import sys

import h5py
import numpy as np
import pytest

from shared import containers
from shared.containers import create_row_file, map_array, map_rows, npy_header
from shared.errors import DamageFound

BOTH = pytest.mark.parametrize("container", ["npy", "h5"])


def written(tmp_path, container, rows, row_shape=None, dtype="float16"):
    file = create_row_file(container, tmp_path / "rows", row_shape or rows.shape[1:], dtype)
    for start in range(0, len(rows), 3):
        file.append(rows[start : start + 3])
    return file.finish()


def sample(count=10, shape=(8,), dtype="float16"):
    return (np.random.RandomState(0).randn(count, *shape) * 50).astype(dtype)


@BOTH
@pytest.mark.parametrize(
    ("shape", "dtype"), [((8,), "float16"), ((5,), "float32"), ((2, 4, 4, 3), "uint8"), ((), "float32")]
)
def test_rows_come_back(tmp_path, container, shape, dtype):
    rows = sample(10, shape, dtype)
    path = written(tmp_path, container, rows, shape, dtype)
    mapped = map_rows(container, path, rows.shape, dtype)
    np.testing.assert_array_equal(mapped, rows)
    assert type(mapped) is np.ndarray
    with pytest.raises(ValueError, match="read-only"):
        mapped[0] = 0


def test_plain_numpy_and_h5py_read_them(tmp_path):
    rows = sample()
    np.testing.assert_array_equal(np.load(written(tmp_path, "npy", rows), mmap_mode="r", allow_pickle=False), rows)
    with h5py.File(written(tmp_path, "h5", rows)) as file:
        assert list(file) == ["features"]
        assert file["features"].chunks is None, "one contiguous dataset"
        np.testing.assert_array_equal(file["features"][:], rows)


@BOTH
def test_rows_that_are_taken_back_leave_no_trace(tmp_path, container):
    rows = sample()
    plain = written(tmp_path, container, rows).read_bytes()
    file = create_row_file(container, tmp_path / "again", (8,), "float16")
    file.append(rows[:4])
    file.append(rows[7:])
    file.truncate(4)
    file.append(rows[4:])
    assert file.finish().read_bytes() == plain


@BOTH
def test_a_file_without_rows(tmp_path, container):
    path = written(tmp_path, container, sample(0))
    assert map_rows(container, path, (0, 8), "float16").shape == (0, 8)


@BOTH
@pytest.mark.parametrize("lost", [1, 16, 159, 160, 200, 2000])
def test_a_shortened_file_is_refused_before_it_is_mapped(tmp_path, container, monkeypatch, lost):
    rows = sample(1000)
    path = written(tmp_path, container, rows)
    path.write_bytes(path.read_bytes()[:-lost])
    monkeypatch.setattr(containers, "map_file", lambda *_: pytest.fail("mapped: reading would kill the process"))
    with pytest.raises(DamageFound, match=r"rows\.(npy|h5)"):
        map_rows(container, path, rows.shape, "float16")


@BOTH
@pytest.mark.parametrize(("shape", "dtype"), [((9, 8), "float16"), ((10, 4), "float16"), ((10, 8), "float32")])
def test_another_shape_or_type_than_the_index_says_is_refused(tmp_path, container, shape, dtype):
    path = written(tmp_path, container, sample())
    with pytest.raises(DamageFound, match=r"rows\."):
        map_rows(container, path, shape, dtype)


@BOTH
def test_a_missing_file_is_damage(tmp_path, container):
    with pytest.raises(DamageFound, match="none"):
        map_rows(container, tmp_path / f"none.{container}", (1, 8), "float16")


@BOTH
def test_where_nothing_can_be_mapped_the_rows_are_in_memory(tmp_path, container, monkeypatch):
    rows = sample()
    path = written(tmp_path, container, rows)

    def refuses(*_):
        raise OSError(19, "No such device")

    monkeypatch.setattr(containers, "map_file", refuses)
    with pytest.warns(UserWarning, match="cannot be mapped .No such device.: 160 bytes of it are in memory"):
        found = map_rows(container, path, rows.shape, "float16")
    np.testing.assert_array_equal(found, rows)
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 0


@BOTH
def test_no_flipped_bit_of_the_structure_moves_a_row(tmp_path, container):
    """A flip is refused, or harmless, or in the payload itself (which checksums find): never rows from elsewhere."""
    rows = np.ones((6, 8), np.float16)
    path = written(tmp_path, container, rows)
    data = path.read_bytes()
    payload = data.index(rows.tobytes())
    outside = [bit for bit in range(len(data) * 8) if not payload <= bit // 8 < payload + rows.nbytes]
    for bit in outside if container == "npy" else outside[::31]:
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            found = map_rows(container, path, rows.shape, "float16")
        except DamageFound:
            continue
        np.testing.assert_array_equal(found, rows, err_msg=f"bit {bit}")
        assert container == "h5", "every bit of an npy header counts"


def test_chunked_hdf5_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("features", data=sample(), chunks=(2, 8))
    with pytest.raises(DamageFound, match="chunked"):
        map_rows("h5", tmp_path / "a.h5", (10, 8), "float16")


def test_a_group_where_the_dataset_should_be_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_group("features")
    with pytest.raises(DamageFound, match="expected a dataset"):
        map_rows("h5", tmp_path / "a.h5", (10, 8), "float16")


def test_a_header_that_does_not_fit_is_a_bug_and_not_a_broken_file(tmp_path):
    with pytest.raises(ValueError, match="does not fit"):
        create_row_file("npy", tmp_path / "rows", (1,) * 40, "uint8")


def test_headers_are_those_of_the_npy_format(tmp_path):
    for shape, dtype in (((3,), "<i4"), ((2, 2), "<f8"), ((0, 5), "<f2"), ((1, 2, 3), "|u1")):
        array = np.zeros(shape, dtype)
        path = tmp_path / "a.npy"
        path.write_bytes(npy_header(shape, array.dtype) + array.tobytes())
        assert len(path.read_bytes()) == 128 + array.nbytes
        loaded = np.load(path, allow_pickle=False)
        assert (loaded.dtype, loaded.shape) == (array.dtype, shape)
        np.testing.assert_array_equal(map_array(path, array.dtype, shape), array)


FOLLOW = """
import sys, h5py
with h5py.File(sys.argv[1], "r", libver="latest", swmr=True) as file:
    rows = file["features"]
    for line in sys.stdin:
        rows.refresh()
        print(len(rows), float(rows[-1, 0]), flush=True)
"""


def test_another_process_can_follow_a_growing_hdf5_file(tmp_path):
    file = create_row_file("h5", tmp_path / "rows", (8,), "float16")
    growing = tmp_path / "rows.growing.h5"
    file.append(np.full((3, 8), 1, np.float16))
    with subprocess.Popen(
        [sys.executable, "-c", FOLLOW, str(growing)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:

        def seen():
            reader.stdin.write("look\n")
            reader.stdin.flush()
            return reader.stdout.readline().split()

        assert seen() == ["3", "1.0"]
        file.append(np.full((4, 8), 2, np.float16))
        assert seen() == ["7", "2.0"]
        file.truncate(3)
        file.append(np.full((1, 8), 3, np.float16))
        assert seen() == ["4", "3.0"]
        reader.stdin.close()
    assert reader.returncode == 0
    assert len(map_rows("h5", file.finish(), (4, 8), "float16")) == 4
    assert not growing.exists()


def test_a_growing_npy_file_holds_what_was_appended(tmp_path):
    file = create_row_file("npy", tmp_path / "rows", (8,), "float16")
    rows = sample(3)
    file.append(rows)
    assert (tmp_path / "rows.npy").read_bytes()[128:] == rows.tobytes()
    file.discard()


def test_hdf5_in_use_is_never_truncated(tmp_path):
    """Opening with "w" a file that is open elsewhere would empty it before failing."""
    file = create_row_file("h5", tmp_path / "rows", (8,), "float16")
    file.append(sample(3))
    with pytest.raises(OSError, match="exists"):
        create_row_file("h5", tmp_path / "rows", (8,), "float16")
    assert len(map_rows("h5", file.finish(), (3, 8), "float16")) == 3


@BOTH
def test_discarding_deletes_everything_and_closes(tmp_path, container):
    file = create_row_file(container, tmp_path / "rows", (8,), "float16")
    file.append(sample())
    file.discard()
    assert list(tmp_path.iterdir()) == []


def test_hdf5s_own_errors_become_the_systems(tmp_path, monkeypatch):
    """HDF5 raises RuntimeError with the number in its text, and would crash when closed on a disk that is full."""
    file = create_row_file("h5", tmp_path / "rows", (8,), "float16")
    file.append(sample(3))

    class Full:
        def __len__(self):
            raise RuntimeError("Unable to flush dataset (file write failed: errno = 28, error message = 'No space')")

    monkeypatch.setattr(file, "_dataset", Full())
    with pytest.raises(OSError, match="No space left") as caught:
        file.append(sample(3))
    assert caught.value.errno == errno.ENOSPC
    file.discard()


@BOTH
def test_bytes_do_not_depend_on_when_or_in_which_pieces(tmp_path, container, monkeypatch):
    rows = sample(100)
    first = written(tmp_path, container, rows).read_bytes()
    monkeypatch.setattr(containers, "_COPY_ROWS", 7)
    file = create_row_file(container, tmp_path / "again", (8,), "float16")
    file.append(rows)
    assert file.finish().read_bytes() == first
