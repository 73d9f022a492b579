"""Compiled indexes: used while they fit, compiled again when they do not, and never believed when they are damaged."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from shared import index_cache
from shared.edit.repair import repair_store
from shared.errors import DamageFound
from shared.index_cache import FOLDER, cached_arrays, damaged_indexes
from shared.schema import FileEntry
from shared.store import open_store, open_writer
from shared.verify import verify_store


@pytest.fixture(autouse=True)
def small_stores_too(monkeypatch, tmp_path):
    monkeypatch.setattr(index_cache, "SMALLEST", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


class Source:
    """A file of a store, and how often it was compiled."""

    def __init__(self, store):
        self.store, self.builds = store, 0
        self.store.mkdir()
        self.write(b"abcdef")

    def write(self, data):
        (self.store / "a.csv").write_bytes(data)
        self.entries = {"a.csv": FileEntry(bytes=len(data), xxh3=index_cache.hash_bytes(data))}

    def build(self):
        self.builds += 1
        data = np.frombuffer((self.store / "a.csv").read_bytes(), np.uint8)
        return {"data": data, "twice": data.astype(np.int64) * 2, "none": np.empty(0, np.float64)}

    def arrays(self):
        found = cached_arrays(self.store, "table", self.entries, self.build)
        assert found["twice"].tolist() == [2 * value for value in (self.store / "a.csv").read_bytes()]
        assert (found["twice"].dtype, found["none"].shape, found["none"].dtype) == (np.int64, (0,), np.float64)
        return found


@pytest.fixture
def source(tmp_path):
    return Source(tmp_path / "store")


def index_of(source):
    return source.store / FOLDER / "table.idx"


def test_compiled_once_and_mapped(source):
    first = source.arrays()
    again = source.arrays()
    assert source.builds == 1
    with pytest.raises(ValueError, match="read-only"):
        again["twice"][0] = 1
    assert sorted(first) == ["data", "none", "twice"]
    assert sorted(path.name for path in index_of(source).parent.iterdir()) == ["table.idx", "table.lock"]


def test_bytes_depend_on_the_sources_alone(source):
    source.arrays()
    first = index_of(source).read_bytes()
    index_of(source).unlink()
    source.arrays()
    assert index_of(source).read_bytes() == first


def test_small_sources_leave_no_file_behind(source, monkeypatch):
    monkeypatch.setattr(index_cache, "SMALLEST", 7)
    source.arrays()
    source.arrays()
    assert source.builds == 2
    assert not (source.store / ".cache").exists()


def test_changed_sources_are_compiled_again(source):
    source.arrays()
    os.utime(source.store / "a.csv", ns=(1, 1))  # other time
    source.arrays()
    assert source.builds == 2
    source.write(b"abcdefg")
    source.arrays()
    assert source.builds == 3
    (source.store / "a.csv").write_bytes(b"gfedcba")
    os.utime(source.store / "a.csv", ns=(1, 1))
    source.entries = {"a.csv": FileEntry(bytes=7, xxh3=index_cache.hash_bytes(b"gfedcba"))}  # same size, other root
    source.arrays()
    assert source.builds == 4
    source.arrays()
    assert source.builds == 4


def test_the_index_of_another_store_or_table_is_not_taken(source, tmp_path):
    source.arrays()
    other = Source(tmp_path / "other")
    other.write(b"zzzzzz")
    shutil.copytree(source.store / ".cache", other.store / ".cache")
    other.arrays()
    assert other.builds == 1
    shutil.copy(index_of(source), index_of(source).with_name("second.idx"))
    cached_arrays(source.store, "second", source.entries, source.build)
    assert source.builds == 2


def test_every_flipped_bit_is_found_and_mended(source):
    source.arrays()
    path = index_of(source)
    data = path.read_bytes()
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert [where for where, _ in damaged_indexes(source.store)] == [f"{FOLDER}/table.idx"], bit
        if bit % 97 == 0:
            builds = source.builds
            source.arrays()
            assert source.builds == builds + 1
            assert path.read_bytes() == data


@pytest.mark.parametrize("data", [b"", b"0", b"{}" + b"%016x" % 2, b"x" * 100, b"[]" + b"%016x" % 2, b" " * 16])
def test_what_is_no_index_is_compiled_again(source, data):
    source.arrays()
    index_of(source).write_bytes(data)
    assert len(damaged_indexes(source.store)) == 1
    source.arrays()
    assert (source.builds, damaged_indexes(source.store)) == (2, [])


def test_cut_anywhere_it_is_compiled_again(source):
    source.arrays()
    data = index_of(source).read_bytes()
    for size in range(0, len(data), 7):
        index_of(source).write_bytes(data[:size])
        assert len(damaged_indexes(source.store)) == 1
    source.arrays()
    assert index_of(source).read_bytes() == data


def unwritable(source):
    """A file where the folder should be: it stops root, too."""
    (source.store / ".cache").write_bytes(b"")


def test_a_store_that_cannot_be_written_to_has_its_index_elsewhere(source, tmp_path):
    unwritable(source)
    source.arrays()
    source.arrays()
    assert source.builds == 1
    (found,) = (tmp_path / "home" / "clipmill").glob("*/table.idx")
    assert found.stat().st_size > 0


def test_where_nothing_can_be_written_each_process_holds_its_own(source, tmp_path):
    unwritable(source)
    (tmp_path / "home").write_bytes(b"")
    for builds in (1, 2):
        with pytest.warns(UserWarning, match="no index of table .* can be kept"):
            source.arrays()
        assert source.builds == builds


def test_what_the_build_raises_is_raised(source):
    def build():
        raise DamageFound("a.csv is damaged")

    with pytest.raises(DamageFound, match=r"a\.csv is damaged"):
        cached_arrays(source.store, "table", source.entries, build)
    source.arrays()


def test_processes_that_come_together_compile_once(source, tmp_path):
    log = tmp_path / "log"

    def build():
        with log.open("a") as file:
            file.write("x")
        return source.build()

    children = []
    for _ in range(6):
        child = os.fork()
        if not child:
            found = cached_arrays(source.store, "table", source.entries, build)
            os._exit(0 if found["twice"].tolist() == [2 * value for value in b"abcdef"] else 1)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 6
    assert log.read_text() == "x"


@pytest.mark.parametrize("call", ["open", "write", "replace"])
def test_killed_while_it_compiles(source, monkeypatch, call):
    child = os.fork()
    if not child:
        kill = staticmethod(lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        if call == "write":
            monkeypatch.setattr(index_cache, "sealed_json", kill)  # all arrays are written, nothing says what they are
        else:
            monkeypatch.setattr(Path, call, kill)
        source.arrays()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not index_of(source).exists()
    assert index_of(source).with_suffix(".tmp").exists() == (call != "open")
    assert damaged_indexes(source.store) == []
    source.arrays()
    source.arrays()
    assert source.builds == 1
    assert not index_of(source).with_suffix(".tmp").exists()


def opened(path):
    """Everything of a store that is compiled."""
    store = open_store(path)
    stream, windows = store.stream("default"), store.manifest_set("default").windows("train")
    return stream.video_ids, stream.read(1).tolist(), [array.tolist() for array in vars(windows).values()]


def test_a_store_is_the_same_through_its_index(tmp_path, samples, monkeypatch):
    path = samples.store(tmp_path / "s")
    with monkeypatch.context() as patch:
        patch.setattr(index_cache, "SMALLEST", 1 << 30)
        expected = opened(path)
    assert opened(path) == expected
    assert sorted(file.stem for file in (path / FOLDER).glob("*.idx")) == ["stream-default", "windows-default.train"]
    for name in ("stream_arrays", "read_shard_index"):
        monkeypatch.setattr(f"shared.features.{name}", lambda *_: pytest.fail("indexes are read again"))
    monkeypatch.setattr("shared.manifest_set.window_arrays", lambda *_: pytest.fail("CSV is read again"))
    assert opened(path) == expected


def test_a_damaged_table_is_found_when_it_is_compiled(tmp_path, samples):
    path = samples.store(tmp_path / "s")
    store = open_store(path)
    file = path / store.root.sets["default"].path / "windows-train.csv"
    file.write_bytes(file.read_bytes().replace(b"2.5", b"2.6"))
    with pytest.raises(DamageFound, match=r"windows-train\.csv is damaged"):
        store.manifest_set("default").windows("train")
    assert not list((path / FOLDER).glob("windows*.idx"))


def test_verify_and_repair(tmp_path, samples):
    path = samples.store(tmp_path / "s")
    expected = opened(path)
    index = path / FOLDER / "stream-default.idx"
    index.write_bytes(index.read_bytes()[:-1])
    assert [damage.path for damage in verify_store(path)] == [f"{FOLDER}/stream-default.idx"]
    index.write_bytes(b"")
    repair_store(path)
    assert verify_store(path) == []
    assert opened(path) == expected


def test_a_commit_leaves_no_index_of_what_is_gone(tmp_path, samples):
    path = samples.store(tmp_path / "s")
    opened(path)
    with open_writer(path) as writer:
        writer.commit([], sets={})
    assert not list((path / FOLDER).glob("*.idx"))


def test_a_user_without_a_home(source, monkeypatch):
    """HOME is not set, and nobody knows the user: the store's own folder is enough."""
    monkeypatch.delenv("XDG_CACHE_HOME")

    def unknown():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    source.arrays()
    source.arrays()
    assert source.builds == 1
    shutil.rmtree(source.store / ".cache")
    unwritable(source)
    with pytest.warns(UserWarning, match="no index of table .* can be kept"):
        source.arrays()


def test_no_two_sets_share_an_index(tmp_path, samples):
    """`a` with the split `b-c`, and `a-b` with the split `c`."""
    path = samples.store(tmp_path / "s")
    with open_writer(path) as writer:
        for name, split in (("a", "b-c"), ("a-b", "c")):
            manifest = samples.manifest(writer.scratch / name)
            manifest.add_window(split, "v00", 0.0, 1.0, 0, 1, [0])
            facts = {
                "stream": "default",
                "stream_fingerprint": "ab",
                "config": {"of": name},
                "tokenizer": {"pad_id": 0},
            }
            writer.commit_set(*manifest.finish(name=name, report={}, **facts))
    store = open_store(path)
    for name, split in (("a", "b-c"), ("a-b", "c")):
        store.manifest_set(name).windows(split)
    assert len(list((path / FOLDER).glob("windows-*.idx"))) == 2


@pytest.mark.timeout(60)
def test_a_pipe_and_a_folder_in_the_place_of_an_index(source):
    source.arrays()
    index_of(source).unlink()
    os.mkfifo(index_of(source))
    assert damaged_indexes(source.store) == [(f"{FOLDER}/table.idx", "no file: a named pipe has its name")]
    source.arrays()
    assert damaged_indexes(source.store) == []
    index_of(source).unlink()
    index_of(source).mkdir()
    assert damaged_indexes(source.store) == [(f"{FOLDER}/table.idx", "no file: a folder has its name")]
    source.arrays()  # elsewhere


def test_an_index_that_another_user_may_not_read_is_no_damage(source, monkeypatch):
    source.arrays()

    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(index_cache, "stat_file", denied)
    assert damaged_indexes(source.store) == []
