"""Whatever has the name of a file of a store, and whoever may not read it: an error that says what to do, at once."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import socket
from pathlib import Path

import h5py
import numpy as np
import pytest

from shared.captions import read_captions
from shared.edit.repair import repair_store
from shared.edit.subset import subset_store
from shared.errors import DamageFound, StoreError
from shared.store import open_store, open_writer
from shared.store_files import COPY, is_damage, open_again, open_file, read_file, stat_file, unreadable
from shared.verify import verify_store

# A pipe that is opened waits for ever.
pytestmark = pytest.mark.timeout(60)
ROWS, INDEX = "features/default/00000-*.npy", "features/default/00000-*.json"
CAPTIONS = ("captions/*.json", "captions/*.jsonl.gz")
TABLES = tuple(f"manifests/*/{name}" for name in ("manifest.json", "videos.csv", "windows-train.csv", "captions.csv"))
TWINS = ("manifests/*/tokens.npy", "manifests/*/offsets.npy")
FILES = (ROWS, INDEX, *CAPTIONS, *TABLES, *TWINS)
FOLDERS = ("features", "features/default", "captions", "manifests", "manifests/*")
# CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (capabilities(7)): what lets root pass over permissions.
_VERSION_3, _OVERRIDES = 0x20080522, 1 << 1 | 1 << 2


@pytest.fixture
def as_a_user():
    """Permissions count, for root, too."""
    system = ctypes.CDLL(None, use_errno=True)
    header, before = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    assert system.capget(header, before) == 0
    without = (ctypes.c_uint32 * 6)(*before)
    without[0] &= ~_OVERRIDES
    assert system.capset(header, without) == 0
    yield
    assert system.capset(header, before) == 0


@pytest.fixture
def store(tmp_path, samples):
    return samples.store(tmp_path / "s")


def one(store: Path, pattern: str) -> Path:
    (found,) = store.glob(pattern)
    return found


def read_all(path: Path, mapping: str = "auto") -> None:
    store = open_store(path)
    stream = store.stream("default", mapping=mapping)
    for number in range(len(stream.video_ids)):
        stream.read(number)
    list(read_captions(store))
    manifest = store.manifest_set("default")
    assert manifest.videos
    assert manifest.caption_texts
    manifest.windows("train")
    manifest.tokens(np.array([[0, 1]]), 4)


@pytest.mark.parametrize("pattern", [*FILES, *FOLDERS])
def test_what_may_not_be_read_is_no_damage(store, tmp_path, as_a_user, pattern):
    place = one(store, pattern)
    mode = place.stat().st_mode
    place.chmod(0)
    try:
        with pytest.raises(StoreError, match=r"cannot be read: Permission denied; it may well be whole: let this user"):
            read_all(store)
        found = {damage.path: damage.what for damage in verify_store(store)}
        inside = place.relative_to(store).as_posix()
        assert all(name.startswith(inside) and "Permission denied" in what for name, what in found.items())
        assert inside in found
        with pytest.raises(StoreError, match="Permission denied"):
            repair_store(store)
        if "manifests" not in pattern:
            with pytest.raises(StoreError, match="Permission denied"):
                subset_store(store, tmp_path / "part", ["v00"])
    finally:
        place.chmod(mode)
    assert verify_store(store) == []
    read_all(store)


def test_a_root_that_may_not_be_read(store, as_a_user):
    (store / "store.json").chmod(0)
    for act in (open_store, verify_store, repair_store):
        with pytest.raises(StoreError, match=r"store\.json cannot be read: Permission denied"):
            act(store)


@pytest.mark.parametrize("mapping", ["auto", "pread"])
def test_a_right_that_is_taken_while_rows_are_read(store, as_a_user, mapping):
    stream = open_store(store).stream("default", mapping=mapping, verify="never")
    if mapping == "pread":
        stream.read(0)
    one(store, ROWS).chmod(0)
    with pytest.raises(StoreError, match="Permission denied"):
        stream.read(0)


def pipe(place: Path) -> None:
    os.mkfifo(place)


def loop(place: Path) -> None:
    place.symlink_to(place.name)


def folder(place: Path) -> None:
    place.mkdir()


def full_folder(place: Path) -> None:
    place.mkdir()
    (place / "other").write_bytes(b"x")


def bound(place: Path) -> None:
    here = os.open(place.parent, os.O_RDONLY)
    try:
        # The path of a socket is 107 bytes at most.
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{place.name}")
    finally:
        os.close(here)


SAYS = {
    pipe: "is no file: a named pipe has its name",
    loop: "cannot be read: Too many levels of symbolic links",
    folder: "is no file: a folder has its name",
    full_folder: "is no file: a folder has its name",
    bound: "is no file: a socket has its name",
}


@pytest.mark.parametrize("put", SAYS)
@pytest.mark.parametrize("pattern", FILES)
def test_what_is_no_file_is_damage_and_is_repaired(store, pattern, put):
    place = one(store, pattern)
    place.unlink()
    put(place)
    for mapping in ("auto", "pread"):
        with pytest.raises(DamageFound, match=rf"{place.name} {SAYS[put]}; run `verify`, then"):
            read_all(store, mapping)
    found = {damage.path: damage.what for damage in verify_store(store)}
    assert found[place.relative_to(store).as_posix()] == SAYS[put].removeprefix("is ")
    repair_store(store)
    assert verify_store(store) == []


@pytest.mark.parametrize("put", [pipe, loop, folder, bound])
def test_a_root_that_is_no_file(store, put):
    (store / "store.json").unlink()
    put(store / "store.json")
    for act in (open_store, verify_store, repair_store):
        with pytest.raises(StoreError, match=r"store\.json cannot be read: "):
            act(store)


@pytest.mark.parametrize("pattern", FOLDERS)
def test_a_file_in_the_place_of_a_folder(store, pattern):
    place = one(store, pattern)
    shutil.rmtree(place)
    place.write_bytes(b"mine")
    with pytest.raises(DamageFound, match="is missing; run `verify`, then"):
        read_all(store)
    found = {damage.path: damage.what for damage in verify_store(store)}
    inside = place.relative_to(store).as_posix()
    assert "orphan" in found.pop(inside)
    assert set(found.values()) == {"missing"}
    assert inside in repair_store(store).aside
    assert verify_store(store) == []
    assert (store / "set-aside" / inside).read_bytes() == b"mine"


@pytest.mark.parametrize("put", [pipe, loop, bound])
def test_a_pipe_in_the_place_of_rows_that_are_being_read(store, put):
    stream = open_store(store).stream("default", mapping="pread", verify="never")
    stream.read(0)
    place = one(store, ROWS)
    place.unlink()
    put(place)
    with pytest.raises(DamageFound, match=SAYS[put]):
        stream.read(0)


@pytest.mark.parametrize("put", [pipe, bound])
def test_a_pipe_in_the_place_of_a_run_record(store, put):
    (store / "runs").mkdir()
    put(store / "runs" / "a.json")
    (damage,) = verify_store(store)
    assert (damage.path, damage.what) == ("runs/a.json", f"run record: {SAYS[put].removeprefix('is ')}")
    with pytest.raises(DamageFound, match="beyond repair"):
        repair_store(store)
    assert os.path.lexists(store / "runs" / "a.json"), "nothing of ours"


def test_a_run_record_that_may_not_be_read(store, as_a_user):
    (store / "runs").mkdir()
    (store / "runs" / "a.json").write_bytes(b"{}")
    (store / "runs" / "a.json").chmod(0)
    assert [damage.what for damage in verify_store(store)] == ["run record: cannot be read: Permission denied"]
    with pytest.raises(StoreError, match="Permission denied"):
        repair_store(store)
    assert (store / "runs" / "a.json").exists()


def test_rows_that_are_locked_are_no_damage(tmp_path, samples):
    store = samples.store(tmp_path / "s", "h5")
    file = one(store, "features/default/00000-*.h5")
    with file.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not refuses(file):
            pytest.skip("this HDF5 does not lock files")
        with pytest.raises(StoreError, match="cannot be read: it is locked; another program may be changing it"):
            read_all(store)
        (damage,) = verify_store(store)
        assert "it is locked" in damage.what
    assert verify_store(store) == []


def refuses(file: Path) -> bool:
    try:
        with h5py.File(file, "r"):
            return False
    except OSError:
        return True


def change(store: Path, samples) -> None:
    """Another first shard, and another set."""
    with open_writer(store) as writer:
        entry = writer.root.streams["default"]
        shard = samples.shard(writer.scratch, entry, unit=7)
        changed = entry.model_copy(update={"shards": (shard.ref, *entry.shards[1:])})
        writer.commit(shard.files, streams={"default": changed})
        samples.commit_set(writer, config={"window": 3})


@pytest.mark.parametrize("mapping", ["auto", "mmap", "pread"])
def test_files_of_a_store_that_was_changed_meanwhile(store, samples, mapping):
    before = open_store(store)
    stream, manifest = before.stream("default", mapping=mapping), before.manifest_set("default")
    change(store, samples)
    for act in (lambda: stream.read(0), lambda: stream.record(0), lambda: manifest.videos):
        with pytest.raises(StoreError, match="is gone because the store was changed while it was in use: start again"):
            act()
    read_all(store)


@pytest.mark.parametrize("root", ["whole", "damaged", "gone"])
def test_files_that_are_gone_from_a_store_that_was_not_changed(store, root):
    stream = open_store(store).stream("default")
    for place in (one(store, ROWS), one(store, INDEX)):
        place.unlink()
    if root == "gone":
        (store / "store.json").unlink()
    elif root == "damaged":
        (store / "store.json").write_bytes(b"{}")
    for act in (lambda: stream.read(0), lambda: stream.record(0)):
        with pytest.raises(DamageFound, match="is missing; run `verify`, then `repair`"):
            act()


def test_each_error_of_the_system_has_its_advice(tmp_path):
    path = tmp_path / "a"
    for number, kind, says in (
        (errno.EIO, DamageFound, "cannot be read: Input/output error; it is a copy"),
        (errno.ENOTDIR, DamageFound, "is missing; it is a copy"),
        (errno.EMFILE, StoreError, "cannot be read: Too many open files; that is no sign of damage"),
        (errno.EPERM, StoreError, "cannot be read: Operation not permitted; it may well be whole"),
        (errno.ESTALE, StoreError, "cannot be read: Stale file handle; that is no sign of damage"),
    ):
        error = OSError(number, os.strerror(number))
        made = unreadable(path, error, COPY)
        assert type(made) is kind
        assert str(made).startswith(f"{path} {says}")
        assert is_damage(error) == (kind is DamageFound)


def test_regular_files_and_links_to_them(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "b").symlink_to("a")
    for name in ("a", "b"):
        assert read_file(tmp_path / name) == b"abc"
        assert stat_file(tmp_path / name).st_size == 3
        for way in (open_file, open_again):
            descriptor = way(tmp_path / name)
            assert os.read(descriptor, 9) == b"abc"
            os.close(descriptor)
    for act in (read_file, stat_file, open_file, open_again):
        with pytest.raises(FileNotFoundError):
            act(tmp_path / "c")
        with pytest.raises(OSError, match="a device has its name"):
            act(Path(os.devnull))
