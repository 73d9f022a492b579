"""Copies of row files: made once, whole or not at all, and checked like the store's own."""

from __future__ import annotations

import os
import pickle
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from shared import staging
from shared.errors import DamageFound, RequestError, StoppedEarly, StoreError
from shared.staging import staged
from shared.store import open_store, open_writer


@pytest.fixture(params=["npy", "h5"])
def stream(request, tmp_path, samples):
    return open_store(samples.store(tmp_path / "s", request.param)).stream("default")


def test_rows_are_read_from_the_copies(stream, tmp_path):
    expected = [stream.read(number) for number in range(6)]
    folder = staged(stream, tmp_path / "local" / "disk")
    stream.read_rows_in(folder)
    for path in stream.row_files:
        path.unlink()
    for reader in (stream, pickle.loads(pickle.dumps(stream))):
        for number in range(6):
            np.testing.assert_array_equal(reader.read(number), expected[number])


def test_copied_once(stream, tmp_path, monkeypatch):
    folder = staged(stream, tmp_path / "local")
    monkeypatch.setattr(staging, "_write_copy", lambda *_: pytest.fail("copied again"))
    assert staged(stream, tmp_path / "local") == folder


def test_a_copy_that_was_cut_is_made_again_and_a_changed_one_is_damage(stream, tmp_path):
    folder = staged(stream, tmp_path / "local")
    copies = sorted(folder.glob(f"*.{stream.entry.container}"))
    os.truncate(copies[0], 100)
    assert staged(stream, tmp_path / "local") == folder
    assert copies[0].read_bytes() == stream.row_files[0].read_bytes()
    data = copies[0].read_bytes()
    place = data.index(stream.read(0).tobytes())
    copies[0].write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    stream.read_rows_in(folder)
    with pytest.raises(DamageFound, match=f"{copies[0]} is damaged: .*; it is a copy: delete it and start again"):
        stream.read(0)


def test_a_copy_that_breaks_off_is_not_taken(stream, tmp_path, monkeypatch):
    def breaks_off(source, target):
        target.write_bytes(source.read_bytes()[:100])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(staging, "_write_copy", breaks_off)
        with pytest.raises(StoppedEarly, match="no space left"):
            staged(stream, tmp_path / "local")
    assert [path.name for path in (tmp_path / "local").rglob("*") if path.is_file()] == [".lock"]
    folder = staged(stream, tmp_path / "local")
    assert [(folder / path.name).read_bytes() for path in stream.row_files] == [
        path.read_bytes() for path in stream.row_files
    ]
    assert not list(folder.glob(".*.tmp"))


def test_what_cannot_be_copied(stream, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RequestError, match="cannot take copies of stream 'default'"):
        staged(stream, tmp_path / "file")
    stream.row_files[0].unlink()
    with pytest.raises(DamageFound, match="is missing"):
        staged(stream, tmp_path / "local")


def test_a_copy_is_deleted_and_made_again(stream, tmp_path):
    """What the message says is to be done about a damaged copy helps."""
    folder = staged(stream, tmp_path / "local")
    copy = folder / stream.row_files[0].name
    copy.write_bytes(bytes(copy.stat().st_size))  # what a power cut leaves of one that was never durable
    stream.read_rows_in(folder)
    with pytest.raises(DamageFound, match=f"{copy} .*; it is a copy: delete it"):
        stream.read(0)
    copy.unlink()
    stream.read_rows_in(staged(stream, tmp_path / "local"))
    stream.read(0)


def test_a_copy_is_durable_before_it_has_its_name(stream, tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, Path.replace

    def noted(descriptor):
        done.append(("fsync", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    def renamed(self, target):
        done.append(("replace", Path(target).name))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "replace", renamed)
    folder = staged(stream, tmp_path / "local")
    names = [path.name for path in stream.row_files]
    each = [event for name in names for event in (("fsync", f".{name}.tmp"), ("replace", name))]
    assert done == [*each, ("fsync", folder.name)]


def test_a_fault_of_the_source_is_not_blamed_on_the_target(stream, tmp_path):
    source = stream.row_files[0]
    whole = source.read_bytes()
    source.unlink()
    os.mkfifo(source)
    with pytest.raises(DamageFound, match=f"{source} is no file: a named pipe has its name; run `verify`"):
        staged(stream, tmp_path / "local")
    source.unlink()
    source.mkdir()
    with pytest.raises(DamageFound, match=f"{source} is no file: a folder has its name; run `verify`"):
        staged(stream, tmp_path / "local")
    source.rmdir()
    source.write_bytes(whole[:-1])
    with pytest.raises(DamageFound, match=f"{source} .*; run `verify`, then `repair`"):
        staged(stream, tmp_path / "local")
    assert [path.name for path in (tmp_path / "local").rglob("*") if path.is_file()] == [".lock"]


def test_a_read_that_fails_is_the_sources(stream, tmp_path, monkeypatch):
    def fails(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "readv", fails)
    with pytest.raises(DamageFound, match=f"{stream.row_files[0]} cannot be read: Input/output error; run `verify`"):
        staged(stream, tmp_path / "local")


def test_a_folder_in_the_place_of_a_copy_is_the_targets(stream, tmp_path):
    copy = staged(stream, tmp_path / "local") / stream.row_files[0].name
    copy.unlink()
    copy.mkdir()
    with pytest.raises(RequestError, match="cannot take copies of stream 'default': Is a directory"):
        staged(stream, tmp_path / "local")


def test_a_stream_that_was_changed_before_it_was_copied(stream, tmp_path):
    with open_writer(stream.store) as writer:
        entry = writer.root.streams["default"]
        writer.commit([], streams={"default": entry.model_copy(update={"shards": entry.shards[1:]})})
    with pytest.raises(StoreError, match="is gone because the store was changed"):
        staged(stream, tmp_path / "local")


def test_a_full_disk_keeps_nothing_of_a_copy(stream, small_disk):
    with (small_disk / "other").open("wb", buffering=0) as other, suppress(OSError):
        while True:
            other.write(bytes(4096))
    with pytest.raises(StoppedEarly, match="no space left"):
        staged(stream, small_disk)
    assert not list(small_disk.rglob("*.tmp"))
