"""Where an extraction stands: what is committed, and what the units in progress say of themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType

from preprocess.in_progress import RunNote, read_notes, remove_notes, write_run_note
from preprocess.meter import Spent
from preprocess.shard import FinishedUnit
from shared.words import counted, duration_words, speed_words


@dataclass(frozen=True)
class Figures:
    """total: videos to do. spent: on those that are done, in units in progress as well.

    wall_s: seconds since the start. units: committed ones.
    """

    total: int
    spent: Spent
    wall_s: float
    units: int = 0

    @property
    def waiting(self) -> float:
        """The part of their time, 0 to 1, that extraction workers waited for frames."""
        return self.spent.share(self.spent.waiting_s)

    @property
    def eta_s(self) -> float | None:
        """Seconds to go if the rest is like what is done; None before anything is."""
        left = self.total - self.spent.videos
        return self.wall_s / self.spent.videos * left if self.spent.videos else None

    def describe(self) -> str:
        """One line for people."""
        eta = "unknown" if self.eta_s is None else str(timedelta(seconds=round(self.eta_s)))
        return (
            f"{self.spent.videos} of {counted(self.total, 'video')}, {duration_words(self.spent.video_s)} of video, "
            f"{counted(self.spent.rows, 'row')}; {speed_words(self.spent.video_s, self.wall_s)}; "
            f"extractors wait {self.waiting:.0%} for frames; to go {eta}"
        )


class Watch:
    """Tells `tell` where things stand: after every unit, and every `every_s` seconds from a thread of its own.

    scratch: the store's, with the notes of units in progress; left-over ones are removed. The same is noted there for
    `report --follow`.
    """

    def __init__(
        self,
        total: int,
        scratch: Path,
        tell: Callable[[Figures], None],
        every_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._scratch, self._tell, self._every_s, self._clock = total, scratch, tell, every_s, clock
        self._started = clock()
        self._units: set[int] = set()
        self._committed = Spent()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="watch", daemon=True)

    def committed(self, finished: FinishedUnit) -> None:
        """Count a unit that is in the store for good."""
        with self._lock:
            self._units.add(finished.unit.number)
            self._committed += finished.spent
        self.look()

    def look(self) -> None:
        """Tell how things stand now."""
        with self._lock:
            figures = self.figures()
            note = RunNote(units=figures.units, videos=figures.spent.videos, line=figures.describe())
            write_run_note(self._scratch, note)
            self._tell(figures)

    def figures(self) -> Figures:
        """As of now; units that died on their way count from their new start."""
        underway = [note.spent for note in read_notes(self._scratch) if note.unit not in self._units]
        spent = sum(underway, self._committed)
        return Figures(self._total, spent, self._clock() - self._started, len(self._units))

    def _repeat(self) -> None:
        while not self._over.wait(self._every_s):
            self.look()

    def __enter__(self) -> Watch:
        remove_notes(self._scratch)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
