"""Progress for people: a line early, one a minute, one at the end; a bar on a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from preprocess.display import Lines, shown_progress
from preprocess.meter import Spent
from preprocess.watch import Figures


def figures(videos: int) -> Figures:
    spent = Spent(videos=videos, rows=9 * videos, video_s=1800 * videos, waiting_s=videos, elapsed_s=4 * videos)
    return Figures(10, spent, wall_s=20.0)


def test_the_words() -> None:
    assert figures(4).describe() == (
        "4 of 10 videos, 2 h of video, 36 rows; 360 x real time; extractors wait 25% for frames; to go 0:00:30"
    )
    assert figures(0).describe().endswith("to go unknown")
    assert "; 0 x real time; " in Figures(10, Spent(), 0.0).describe()


def test_a_line_early_one_a_minute_and_one_at_the_end() -> None:
    now = [0.0]
    lines: list[str] = []
    display = Lines(lines.append, 60.0, lambda: now[0])
    seen = []
    for second in range(200):
        now[0] = second
        display.show(figures(min(9, second // 10)))
        seen += [second] * (len(lines) - len(seen))
    assert seen == [10, 70, 130, 190]
    display.show(figures(10))
    display.end()
    display.end()
    assert len(lines) == 5
    assert lines[-1].startswith("10 of 10 videos")


def test_a_long_first_video_does_not_silence_it() -> None:
    now = [0.0]
    lines: list[str] = []
    display = Lines(lines.append, 60.0, lambda: now[0])
    for second in (1, 61, 62, 63):
        now[0] = second
        display.show(figures(second // 63))
    assert [line[:7] for line in lines] == ["0 of 10", "1 of 10"], "the first that is done is told at once"


def test_nothing_done_says_nothing() -> None:
    console = Console(file=io.StringIO())
    with shown_progress(console):
        pass
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]


def test_a_bar_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=150, highlight=False)
    with shown_progress(console) as progress:
        progress.units(figures(3))
        progress.note("stream [bold] is made again")
        progress.units(figures(10))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "3 of 10 videos" in shown
    assert "stream [bold] is made again" in shown
    assert "━" in shown
    assert shown.rindex("10 of 10 videos") > shown.index("is made again")
