"""Progress for people: a bar on a terminal, else a line early, one a minute, and one at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from preprocess.extraction import Progress as RunProgress
from preprocess.watch import Figures


@contextmanager
def shown_progress(console: Console) -> Iterator[RunProgress]:
    """What `run` is to report to for the block."""
    display = Bar(console) if console.is_terminal else Lines(lambda line: console.print(escape(line)))
    try:
        yield RunProgress(note=lambda text: console.print(escape(text)), units=display.show)
    finally:
        display.end()


class Lines:
    """A line as soon as something is done, then one every `every_s` seconds, and the last figures at the end."""

    def __init__(
        self, write: Callable[[str], None], every_s: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write, self._every_s, self._clock = write, every_s, clock
        self._due = clock() + every_s
        self._pending: Figures | None = None
        self._shown_any = False
        self._lock = threading.Lock()

    def show(self, figures: Figures) -> None:
        with self._lock:
            self._pending = figures
            if self._clock() >= self._due or (figures.spent.videos and not self._shown_any):
                self._print(figures)

    def end(self) -> None:
        with self._lock:
            if self._pending is not None:
                self._print(self._pending)

    def _print(self, figures: Figures) -> None:
        self._write(figures.describe())
        self._shown_any = self._shown_any or figures.spent.videos > 0
        self._due, self._pending = self._clock() + self._every_s, None


class Bar:
    """A live bar with the figures beside it; notes are printed above."""

    def __init__(self, console: Console) -> None:
        # Drawn when there is something new; the description is our text and not markup.
        columns = BarColumn(20), TextColumn("{task.description}", markup=False)
        self._progress = Progress(*columns, console=console, auto_refresh=False)
        self._task = self._progress.add_task("starting", total=None)

    def show(self, figures: Figures) -> None:
        self._progress.start()
        self._progress.update(
            self._task, description=figures.describe(), completed=figures.spent.videos, total=figures.total
        )
        self._progress.refresh()

    def end(self) -> None:
        self._progress.stop()
