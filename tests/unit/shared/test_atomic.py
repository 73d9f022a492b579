"""How bytes become durable, and what a full disk does."""

from __future__ import annotations

import errno
import os

import pytest

from shared.atomic import disk_full_stops, make_directory, move_into_place, replace_file, write_new_file
from shared.errors import StoppedEarly


@pytest.fixture
def calls(monkeypatch):
    """Names of the calls that decide what survives a kill, in order, with the file or folder that each was made on."""
    made = []
    real_fsync, real_rename = os.fsync, os.rename

    def fsync(descriptor):
        made.append(("fsync", os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))))  # noqa: PTH115, PTH119
        real_fsync(descriptor)

    def rename(source, target):
        made.append(("rename", os.path.basename(target)))  # noqa: PTH119
        real_rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    return made


def test_replacing_is_write_fsync_rename_fsync_of_the_folder(tmp_path, calls):
    target = tmp_path / "store.json"
    target.write_bytes(b"old")
    replace_file(target, b"new")
    assert calls == [("fsync", ".store.json.tmp"), ("rename", "store.json"), ("fsync", tmp_path.name)]
    assert [path.name for path in tmp_path.iterdir()] == ["store.json"]
    assert target.read_bytes() == b"new"


def test_a_new_folders_name_is_made_durable_in_every_folder_above(tmp_path, calls):
    make_directory(tmp_path / "a" / "b")
    assert sorted(calls) == sorted([("fsync", "a"), ("fsync", tmp_path.name)])
    calls.clear()
    make_directory(tmp_path / "a" / "b")
    assert calls == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_stops_early_and_says_what_to_do(tmp_path, number):
    with pytest.raises(StoppedEarly, match=r"no space left while writing .*free some space"), disk_full_stops(tmp_path):
        raise OSError(number, os.strerror(number))


def test_other_errors_pass_through(tmp_path):
    with pytest.raises(PermissionError), disk_full_stops(tmp_path):
        raise PermissionError(errno.EACCES, "no")


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_replacement_that_fails_leaves_the_old_content(tmp_path, monkeypatch, name):
    target = tmp_path / "store.json"
    target.write_bytes(b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, name, full)
    with pytest.raises(StoppedEarly):
        replace_file(target, b"new")
    assert target.read_bytes() == b"old"


def test_moving_keeps_the_bytes(tmp_path):
    write_new_file(tmp_path / "a", b"data")
    move_into_place(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"data"
    assert not (tmp_path / "a").exists()
