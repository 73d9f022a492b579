"""A host's own disk: what the living hold stays, what the dead left goes, and shards come home whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from preprocess import scratch
from preprocess.scratch import bring_home, local_folder, sweep
from shared.errors import EnvironmentLacking, RunFailed, StoppedEarly
from shared.fingerprint import hash_file
from shared.schema import Source, StreamEntry
from shared.shard_writer import FinishedShard, ShardWriter

HOLD = """
import sys
from pathlib import Path
from preprocess.scratch import local_folder
with local_folder(Path(sys.argv[1]), Path(sys.argv[2])) as folder:
    (folder / "rows.npy").write_bytes(b"half a shard")
    print(folder, flush=True)
    sys.stdin.read()
"""


def holder(root: Path, store: str = "/a/store") -> tuple[subprocess.Popen[str], Path]:
    """A worker of another run, and the folder that it holds."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root), store], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def finish(process: subprocess.Popen[str], number: int | None = None) -> None:
    with process:
        if number is not None:
            process.send_signal(number)


def made(folder: Path, rows: int = 6) -> FinishedShard:
    entry = StreamEntry(
        kind="features", fingerprint="aa", identity={}, container="npy", dtype="float32", row_shape=(3,)
    )
    with ShardWriter(folder, "s", entry, "00", 0) as writer:
        writer.append(np.ones((rows, 3), np.float32))
        spans = np.stack([np.arange(rows), np.arange(rows) + 1.0], axis=1)
        writer.end_video(
            "v", source=Source(bytes=1, xxh3="ab"), duration=1.0, decoder="decord", partial=False, spans=spans,
            valid=np.zeros(rows, np.int32),
        )  # fmt: skip
        return writer.finish()


def test_a_folder_lives_as_long_as_its_block(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "local"
    with suppress(KeyError), local_folder(root, tmp_path / "s") as folder:
        (folder / "x").mkdir()
        (folder / "x" / "rows.npy").write_bytes(b"1")
        raise KeyError
    assert list(root.iterdir()) == []


def test_the_dead_are_removed_the_living_and_strangers_are_not(tmp_path: Path) -> None:
    living, held = holder(tmp_path)
    dead, left = holder(tmp_path, "/another/store")
    finish(dead, signal.SIGKILL)
    assert left.exists()
    stranger = tmp_path / "clipmill-00000000-of-another-host"
    (tmp_path / "mine").mkdir()
    stranger.mkdir()
    link, others = (tmp_path / f"{held.name[:18]}{name}" for name in ("link", "others"))
    link.symlink_to(tmp_path / "mine")
    others.mkdir()
    if os.geteuid() == 0:
        os.chown(others, 12345, -1)
    with local_folder(tmp_path, Path("/a/store")):
        assert not left.exists()
        assert (held / "rows.npy").exists()
        assert stranger.exists()
        assert link.exists()
        assert others.exists() == (os.geteuid() == 0), "another user's"
    finish(living)
    assert not held.exists()
    assert (tmp_path / "mine").exists()


def test_workers_that_were_told_to_end_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    dying, held = holder(tmp_path, str(store))
    other, kept = holder(tmp_path, "/another/store")

    def nap(_: float) -> None:
        assert dying.poll() is None, "another store's worker is waited for"
        finish(dying, signal.SIGKILL)

    monkeypatch.setattr(scratch.time, "sleep", nap)
    sweep(tmp_path, store, wait_s=60)
    assert (held.exists(), kept.exists()) == (False, True)
    finish(other)


def test_waiting_ends(tmp_path: Path) -> None:
    living, held = holder(tmp_path, str(tmp_path))
    sweep(tmp_path, tmp_path, wait_s=0.1)
    assert held.exists()
    finish(living)


def test_a_folder_that_is_swept_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, swept = scratch.fcntl.flock, []

    def flock(descriptor: int, how: int) -> None:
        if how == scratch.fcntl.LOCK_EX and not swept:
            swept.append(Path(f"/proc/self/fd/{descriptor}").readlink())
            swept[0].rmdir()
        real(descriptor, how)

    monkeypatch.setattr(scratch.fcntl, "flock", flock)
    with local_folder(tmp_path, tmp_path) as folder:
        assert folder != swept[0]
        assert folder.is_dir()


def test_a_root_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(EnvironmentLacking, match=r"ray\.scratch .*file on host .*local disk"),
        local_folder(tmp_path / "file", tmp_path),
    ):
        pytest.fail("not a folder")


def test_shards_come_home_with_the_same_bytes(tmp_path: Path) -> None:
    shard = made(tmp_path / "local")
    (home,) = bring_home([shard], tmp_path / "home")
    assert (home.ref, home.stream) == (shard.ref, shard.stream)
    for file in home.files:
        assert file.scratch.parent == tmp_path / "home"
        assert hash_file(file.scratch) == file.entry.xxh3


@pytest.mark.parametrize("fault", ["full", "changed"])
def test_nothing_is_left_of_shards_that_do_not_come_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    first, second = made(tmp_path / "one"), made(tmp_path / "two", rows=7)
    second = replace(second, files=second.files[::-1])
    if fault == "changed":
        second.files[-1].scratch.write_bytes(b"other bytes")
        with pytest.raises(RunFailed, match="reads other bytes than were written"):
            bring_home([first, second], tmp_path / "home")
    else:
        calls = iter(range(3))

        def full(_: int) -> None:
            if next(calls, None) is None:
                raise OSError(28, os.strerror(28))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StoppedEarly):
            bring_home([first, second], tmp_path / "home")
    assert list((tmp_path / "home").iterdir()) == []


def test_a_really_full_local_disk_stops_early_and_is_empty_after(small_disk: Path, tmp_path: Path) -> None:
    with pytest.raises(StoppedEarly), local_folder(small_disk, tmp_path) as folder:
        made(folder, rows=200_000)
    assert list(small_disk.iterdir()) == []
