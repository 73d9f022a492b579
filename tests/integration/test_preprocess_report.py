"""`preprocess report`: a run is followed while it writes, without disturbing it, and told about afterwards."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from preprocess import report
from preprocess.in_progress import RunNote, write_run_note
from preprocess.report import shards_in_progress
from shared.fingerprint import sealed_json
from shared.lease import lease_holder
from shared.store import open_writer
from shared.verify import verify_store
from shared.words import counted

CONFIG = """
inputs: {media}/videos.csv
store: {folder}/store
container: {container}
streams:
  default: {{kind: timm, size: 64, batch_size: 1}}
  thumbs: {{kind: frames, size: 24, sampling: {{fps: 0.5}}}}
shard_videos: 20
engine: here
"""


def preprocess(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "preprocess", *map(str, arguments)]


@pytest.mark.parametrize("container", [pytest.param("npy", marks=pytest.mark.full), "h5"])
def test_a_run_is_followed_while_it_writes(small_media: Path, tmp_path: Path, container: str) -> None:
    config, store = tmp_path / "config.yaml", tmp_path / "store"
    config.write_text(CONFIG.format(media=small_media, folder=tmp_path, container=container))
    with subprocess.Popen(preprocess("run", config), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        while not any(shard.stream == "default" and shard.rows for shard in shards_in_progress(store)):
            assert run.poll() is None
            time.sleep(0.01)
        run.send_signal(signal.SIGSTOP)  # so that there is something to see for as long as it takes
        frozen = {shard.stream: shard.rows for shard in shards_in_progress(store)}
        once = subprocess.run(preprocess("report", store), capture_output=True, text=True, check=True).stdout
        follow = subprocess.Popen(
            preprocess("report", store, "--follow", "--every", "0.1"), stdout=subprocess.PIPE, text=True
        )
        with follow:
            assert follow.stdout is not None
            lines = [follow.stdout.readline() for _ in frozen]
            run.send_signal(signal.SIGCONT)
            lines += follow.stdout.read().splitlines()
        _, errors = run.communicate()
    assert run.returncode == 1, errors
    assert follow.returncode == 0
    assert f"being written by process {run.pid} on " in once
    assert 0 < frozen["default"] < 42
    for stream, rows in frozen.items():
        seen = f"stream {stream}, unit 0: {counted(rows, 'row')}, "
        assert seen in once
        assert any(line.startswith(seen) for line in lines[:2])
    assert "of 14 videos, grew " in once
    totals = [line for line in lines if " in the store" in line]
    assert " of 14 videos, " in totals[0]
    assert " x real time; " in totals[0]
    assert "to go " in totals[0]
    assert any(line.startswith("stream default (features): 42 rows of 1280 float16, 12 videos") for line in lines)
    assert "  failed: 1 missing_file" in lines
    assert lines[-1].startswith("run 20"), "the account of the finished store, with its run"
    assert "14 videos worked on in " in lines[-1]
    assert re.search("is the slowest stage|too short to tell what is slowest", lines[-1])
    assert verify_store(store) == []
    assert lease_holder(store) is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_ends_the_following_loses_nothing(small_store, tmp_path: Path, number: signal.Signals) -> None:  # type: ignore[no-untyped-def]
    store = small_store(tmp_path / "store")
    with open_writer(store) as writer:
        write_run_note(writer.scratch, RunNote(units=2, videos=5, line="5 of 9 videos"))
        follow = subprocess.Popen(
            preprocess("report", store, "--follow"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # What starts the tests may have left it ignored, and the child would leave it so.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        with follow:
            assert follow.stdout is not None
            assert follow.stdout.readline() == "5 of 9 videos; 2 units in the store\n"
            follow.send_signal(number)
            rest = follow.communicate()
    assert (follow.returncode, rest) == (0, ("", ""))


def test_units_between_two_looks_are_counted(small_store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    store = small_store(tmp_path / "store")
    (store / ".tmp").mkdir()
    looks = iter([(0, 0), (0, 0), (3, 12), None])

    def holder(_: Path) -> str | None:
        look = next(looks)
        if look is None:
            return None
        note = RunNote(units=look[0], videos=look[1], line=f"{look[1]} of 20 videos")
        write_run_note(store / ".tmp", note)
        return "process 1"

    monkeypatch.setattr(report, "lease_holder", holder)
    console = Console(file=StringIO())
    assert report.follow(store, console, 0.0)
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "0 of 20 videos; 0 units in the store",
        "12 of 20 videos; 3 units in the store",
    ]
    (store / ".tmp" / "run.json").write_text('{"units": "many"}')
    looks = iter([(0, 0)])
    monkeypatch.setattr(report, "lease_holder", lambda _: next(looks, None))
    assert report.follow(store, Console(file=StringIO(), force_terminal=True), 0.0)


def test_without_a_run_it_ends_at_once(small_store, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    store = small_store(tmp_path / "store", thumbs=True)
    done = subprocess.run(preprocess("report", store, "--follow"), capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{store}: ")
    assert lines[1:] == [
        "stream default (features): 480 rows of 8 float16, 32 videos, 8 min, 1 shard (npy)",
        "stream thumbs (frames): 480 rows of 12 x 16 x 3 uint8, 32 videos, 8 min, 1 shard (npy)",
        "set default of stream default: 72 windows in train, 24 windows in val",
    ]


def test_what_a_store_says_is_not_trusted(small_store, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Strange records, notes and leases end in words, not in a traceback."""
    store = small_store(tmp_path / "store")
    (store / "runs").mkdir()
    (store / "runs" / "1.json").write_bytes(sealed_json({"started": [], "host": None}))
    (store / "runs" / "2.json").write_bytes(b'{"cut')
    (store / ".lease").write_bytes(b"\xff" * 10)
    (store / ".tmp" / "a").mkdir(parents=True)
    (store / ".tmp" / "a" / "progress.json").write_bytes(b"[1, 2")
    done = subprocess.run(preprocess("report", store), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "a run record of another form: " in done.stdout


def test_a_stopped_run_leaves_its_record(small_media: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(media=small_media, folder=tmp_path, container="npy"))
    command = preprocess("run", config, "shard_videos=1")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        while len(list((tmp_path / "store" / "features" / "default").glob("*.json"))) < 2:
            assert run.poll() is None
            time.sleep(0.01)
        run.terminate()  # perhaps in the middle of the second commit
        run.communicate()
    assert run.returncode == 4
    (path,) = (tmp_path / "store" / "runs").iterdir()
    record = json.loads(path.read_bytes())
    assert record["stopped"] is True
    assert record["extracted"] >= 1
    assert record["spent"]["videos"] == record["extracted"]
