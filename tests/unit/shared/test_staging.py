"""Copies of row files: made once, whole or not at all, and checked like the store's own."""

from __future__ import annotations

import os
import pickle
import shutil

import numpy as np
import pytest

from shared.errors import DamageFound, RequestError, StoppedEarly
from shared.staging import staged
from shared.store import open_store


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
    monkeypatch.setattr(shutil, "copyfile", lambda *_: pytest.fail("copied again"))
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
    with pytest.raises(DamageFound, match=f"{copies[0]} is damaged"):
        stream.read(0)


def test_a_copy_that_breaks_off_is_not_taken(stream, tmp_path, monkeypatch):
    def breaks_off(source, target):
        target.write_bytes(source.read_bytes()[:100])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", breaks_off)
        with pytest.raises(StoppedEarly, match="no space left"):
            staged(stream, tmp_path / "local")
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
