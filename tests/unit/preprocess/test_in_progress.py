"""Units in progress: their notes, and shards that another process is writing at this moment."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from preprocess.in_progress import NOTE, GrowingShard, NoteWriter, read_notes, remove_notes, rows_now
from preprocess.meter import Spent
from preprocess.plan import Unit, UnitVideo

HOST = socket.gethostname()
WRITER = """
import sys
import numpy as np
from pathlib import Path
from shared.containers import create_row_file
file = create_row_file(sys.argv[1], Path(sys.argv[2]), (3,), "float32")
print(file.growing, flush=True)
for line in sys.stdin:
    if line.strip() == "back":
        file.truncate(0)
    else:
        file.append(np.ones((int(line), 3), np.float32))
    print("done", flush=True)
print(file.finish())
"""


def unit(number: int) -> Unit:
    return Unit(number, {"s": "00"}, tuple(UnitVideo(f"v{n}", Path("/v"), ("s",)) for n in range(4)))


def shard(path: object, container: str = "npy", rows: int = 0) -> GrowingShard:
    return GrowingShard.model_validate({"path": str(path), "container": container, "row_bytes": 12, "rows": rows})


def test_notes_come_back_the_newest_of_each_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([5.0, 9.0, 7.0])
    monkeypatch.setattr(time, "time", lambda: next(now))
    NoteWriter(tmp_path / "a", unit(1)).write(Spent(videos=1), {"s": shard("/x", rows=3)})
    NoteWriter(tmp_path / "b", unit(0)).write(Spent(videos=2), {})
    NoteWriter(tmp_path / "c", unit(0)).write(Spent(videos=3), {})
    first, second = read_notes(tmp_path)
    assert (first.unit, first.spent.videos, first.of) == (0, 2, 4)
    assert (second.unit, second.shards["s"].rows, second.host) == (1, 3, HOST)
    remove_notes(tmp_path)
    assert list(read_notes(tmp_path)) == []


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"null", b'{"unit": 1}', b"[" * 100_000, b"NaN"])
def test_files_that_are_no_notes_are_passed_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / NOTE).write_bytes(content)
    NoteWriter(tmp_path / "b", unit(2)).write(Spent(), {})
    assert [note.unit for note in read_notes(tmp_path)] == [2]


def test_a_note_is_due_once_a_second(tmp_path: Path) -> None:
    now = [0.0]
    writer = NoteWriter(tmp_path, unit(0), 1.0, lambda: now[0])
    due = []
    for tenth in range(25):
        now[0] = tenth / 10
        due.append(writer.is_due)
        if writer.is_due:
            writer.write(Spent(), {})
    assert [n for n, is_due in enumerate(due) if is_due] == [0, 10, 20]


@pytest.mark.parametrize("container", ["npy", "h5"])
def test_the_rows_of_a_shard_that_another_process_writes(tmp_path: Path, container: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, container, str(tmp_path / "rows")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        growing = shard(process.stdout.readline().strip(), container, rows=77)
        seen = [rows_now(growing, HOST)[0]]
        for order in ("2", "5", "back", "4"):
            process.stdin.write(f"{order}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"
            rows, grown = rows_now(growing, HOST)
            assert grown is not None
            seen.append(rows)
        assert seen == [0, 2, 7, 0, 4]
        assert rows_now(growing, "elsewhere") == (77, None), "a path of another host says nothing here"
        process.stdin.close()
        assert process.stdout.readline(), "the writer was not disturbed"
    assert process.returncode == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda path: None,
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b"no HDF5"),
        lambda path: subprocess.run(["mkfifo", str(path)], check=True),
    ],
)
@pytest.mark.parametrize("container", ["npy", "h5"])
def test_what_cannot_be_followed_is_as_the_note_says(
    tmp_path: Path, make: Callable[[Path], object], container: str
) -> None:
    path = tmp_path / "rows"
    make(path)
    if container == "npy" and path.is_file():
        path.unlink()
    assert rows_now(shard(path, container, rows=5), HOST) == (5, None)


def test_a_path_with_a_nul_byte_is_no_file(tmp_path: Path) -> None:
    note = json.loads(shard("x").model_dump_json()) | {"path": "a\0b", "rows": 1}
    assert rows_now(GrowingShard.model_validate(note), HOST) == (1, None)
