"""What a unit in progress, and the run as a whole, say of themselves: small files in the store's scratch folder.

For people and for the driver. Hints, never a part of the store: renamed into place, not forced to the disk.
"""

from __future__ import annotations

import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
from pydantic import BaseModel, ConfigDict, ValidationError

from preprocess.meter import Spent
from preprocess.plan import Unit
from shared.atomic import disk_full_stops
from shared.containers import DATASET, NPY_HEADER_BYTES
from shared.schema import Container

NOTE = "progress.json"
RUN_NOTE = "run.json"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class GrowingShard(_Record):
    """One stream's row file: where it grows (a path on the worker's host), and the rows in it when this was written."""

    path: str
    container: Container
    row_bytes: int
    rows: int


class UnitNote(_Record):
    """A unit's state. `of`: its videos. `updated`: seconds since 1970 by the worker's clock."""

    unit: int
    of: int
    host: str
    updated: float
    spent: Spent
    shards: dict[str, GrowingShard]


class RunNote(_Record):
    """How a run stands. units: committed ones; videos: done, in units in progress as well; line: all of it in words."""

    units: int
    videos: int
    line: str


class NoteWriter:
    """Writes one unit's note into `folder`, which is the worker's own."""

    def __init__(
        self, folder: Path, unit: Unit, every_s: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._unit, self._every_s, self._clock = folder / NOTE, unit, every_s, clock
        self._last: float | None = None

    @property
    def is_due(self) -> bool:
        return self._last is None or self._clock() - self._last >= self._every_s

    def write(self, spent: Spent, shards: dict[str, GrowingShard]) -> None:
        """Replace the note. Raises StoppedEarly on a full disk."""
        note = UnitNote(
            unit=self._unit.number,
            of=len(self._unit.videos),
            host=socket.gethostname(),
            updated=time.time(),
            spent=spent,
            shards=shards,
        )
        temporary = self._path.with_name(f".{NOTE}.tmp")
        with disk_full_stops(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(note.model_dump_json())
            temporary.replace(self._path)
        self._last = self._clock()


def read_notes(scratch: Path) -> Iterator[UnitNote]:
    """The newest note of every unit in progress, by number. Files that are no notes are passed over: they are hints."""
    newest: dict[int, UnitNote] = {}
    for path in scratch.glob(f"*/{NOTE}"):
        try:
            note = UnitNote.model_validate_json(path.read_bytes())
        except (FileNotFoundError, ValidationError):
            continue
        # A worker that died left its note; the unit was begun again since.
        if note.unit not in newest or note.updated > newest[note.unit].updated:
            newest[note.unit] = note
    yield from (note for _, note in sorted(newest.items()))


def write_run_note(scratch: Path, note: RunNote) -> None:
    """Replace the run's note. What keeps a hint from being written ends the run, if it must, where that writes rows."""
    temporary = scratch / f".{RUN_NOTE}.tmp"
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        temporary.write_text(note.model_dump_json())
        temporary.replace(scratch / RUN_NOTE)
    except OSError:
        return


def read_run_note(scratch: Path) -> RunNote | None:
    """What the run that goes on says of itself, if it does. What is no such note is passed over: it is a hint."""
    try:
        return RunNote.model_validate_json((scratch / RUN_NOTE).read_bytes())
    except (OSError, ValidationError):
        return None


def remove_notes(scratch: Path) -> None:
    """Forget units that nobody works on any more, and what the run said of them."""
    for path in (scratch / RUN_NOTE, *scratch.glob(f"*/{NOTE}")):
        path.unlink(missing_ok=True)


def rows_now(shard: GrowingShard, host: str) -> tuple[int, float | None]:
    """Rows in a shard's file at this moment, and when it last grew (seconds since 1970).

    What the note says, and None, where the file grows on another host, is finished already, or cannot be followed.
    """
    path = Path(shard.path)
    if host != socket.gethostname():
        return shard.rows, None
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return shard.rows, None
        if shard.container == "npy":
            return max(0, status.st_size - NPY_HEADER_BYTES) // max(1, shard.row_bytes), status.st_mtime
        # SWMR: the writer goes on meanwhile, and what it has flushed is whole.
        with h5py.File(path, "r", libver="latest", swmr=True) as file:
            return len(file[DATASET]), status.st_mtime
    except (OSError, KeyError, RuntimeError, ValueError, TypeError):  # gone, or what h5py makes of half a superblock
        return shard.rows, None
