"""Figures of an extraction: committed units, and those in progress, each video counted once."""

from __future__ import annotations

import threading
from pathlib import Path

from preprocess.in_progress import NoteWriter, RunNote, read_notes, read_run_note, remove_notes, write_run_note
from preprocess.meter import Spent
from preprocess.plan import Unit, UnitVideo
from preprocess.shard import FinishedUnit
from preprocess.watch import Figures, Watch


def unit(number: int) -> Unit:
    return Unit(number, {"s": "00"}, tuple(UnitVideo(f"v{n}", Path("/v"), ("s",)) for n in range(4)))


def finished(number: int, spent: Spent) -> FinishedUnit:
    return FinishedUnit(unit(number), (), (), spent)


def test_a_unit_counts_once_from_its_first_note_to_its_commit(tmp_path: Path) -> None:
    now = [100.0]
    told: list[Figures] = []
    watch = Watch(8, tmp_path, told.append, clock=lambda: now[0])
    now[0] = 110.0
    assert watch.figures() == Figures(8, Spent(), 10.0)
    NoteWriter(tmp_path / "a", unit(0)).write(Spent(videos=3, rows=7, video_s=30), {})
    NoteWriter(tmp_path / "b", unit(1)).write(Spent(videos=1, rows=2, video_s=10), {})
    assert watch.figures().spent == Spent(videos=4, rows=9, video_s=40)
    assert watch.figures().eta_s == 10.0
    watch.committed(finished(0, Spent(videos=4, rows=9, video_s=40)))
    assert told[-1].spent == Spent(videos=5, rows=11, video_s=50)
    assert told[-1].units == 1
    watch.committed(finished(1, Spent(videos=4, rows=8, video_s=40)))
    assert (told[-1].spent.videos, told[-1].eta_s) == (8, 0.0)


def test_it_tells_from_a_thread_and_forgets_what_an_earlier_try_left(tmp_path: Path) -> None:
    NoteWriter(tmp_path / "old", unit(0)).write(Spent(videos=3), {})
    told: list[int] = []
    often = threading.Event()

    def tell(figures: Figures) -> None:
        told.append(figures.spent.videos)
        if len(told) == 3:
            often.set()

    with Watch(8, tmp_path, tell, every_s=0.001):
        assert often.wait(60)
        assert list(read_notes(tmp_path)) == []
    count = len(told)
    assert told == [0] * count
    assert not [thread for thread in threading.enumerate() if thread.name == "watch"]


def test_what_it_tells_is_noted_for_those_who_follow(tmp_path: Path) -> None:
    watch = Watch(8, tmp_path / "scratch", lambda _: None, clock=lambda: 0.0)
    assert read_run_note(tmp_path / "scratch") is None
    watch.committed(finished(0, Spent(videos=4, rows=9, video_s=40)))
    note = read_run_note(tmp_path / "scratch")
    assert note is not None
    assert note == RunNote(units=1, videos=4, line=watch.figures().describe())
    remove_notes(tmp_path / "scratch")
    assert read_run_note(tmp_path / "scratch") is None
    # A hint that cannot be written is no reason to stop.
    (tmp_path / "file").touch()
    write_run_note(tmp_path / "file", note)
