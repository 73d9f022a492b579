"""`preprocess report`: what a store holds, how its last runs went, and what a run that is going on is writing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from preprocess.in_progress import RunNote, read_notes, read_run_note, rows_now
from preprocess.meter import Spent
from preprocess.record import read_records
from shared.explain import first_fault
from shared.features import StreamReader
from shared.lease import lease_holder
from shared.schema import Root
from shared.store import SCRATCH, open_store, outdated_sets
from shared.words import counted, duration_words, speed_words

_LAST_RUNS = 5


@dataclass(frozen=True)
class Growing:
    """One shard in progress. videos, of: those of its unit that are done, and all. grown: seconds since 1970."""

    unit: int
    stream: str
    host: str
    rows: int
    videos: int
    of: int
    grown: float

    @property
    def line(self) -> str:
        return (
            f"stream {self.stream}, unit {self.unit}: {counted(self.rows, 'row')}, "
            f"{self.videos} of {counted(self.of, 'video')}, "
            f"grew {self.age} ago on {self.host}"
        )

    @property
    def age(self) -> str:
        return f"{max(0.0, time.time() - self.grown):.0f} s"  # not below 0: hosts' clocks differ


def shards_in_progress(store: Path) -> list[Growing]:
    """What the workers of a run are writing now, by unit and stream."""
    found = []
    for note in read_notes(store / SCRATCH):
        for stream, shard in sorted(note.shards.items()):
            rows, grown = rows_now(shard, note.host)
            found.append(Growing(note.unit, stream, note.host, rows, note.spent.videos, note.of, grown or note.updated))
    return found


def follow(store: Path, console: Console, every_s: float) -> bool:
    """Show how a run stands, and its shards in progress, until nobody writes to the store: a live table on a terminal,
    else lines of what grew. False where the user (Ctrl-C) or SIGTERM ended it first, as `tail -f` is ended.
    """
    open_store(store)
    try:
        if console.is_terminal:
            _follow_live(store, console, every_s)
        else:
            _follow_lines(store, console, every_s)
    except KeyboardInterrupt:
        return False
    return True


def _follow_live(store: Path, console: Console, every_s: float) -> None:
    with Live(console=console, auto_refresh=False) as live:
        while holder := lease_holder(store):
            run = read_run_note(store / SCRATCH)
            table = _table(f"written by {holder}", shards_in_progress(store), _totals(run) if run else "")
            live.update(table, refresh=True)
            time.sleep(every_s)


def _follow_lines(store: Path, console: Console, every_s: float) -> None:
    seen: dict[tuple[int, str], int] = {}
    told: tuple[int, int] | None = None
    while lease_holder(store):
        for shard in shards_in_progress(store):
            if seen.get((shard.unit, shard.stream)) != shard.rows:
                seen[shard.unit, shard.stream] = shard.rows
                console.print(escape(shard.line))
        # Also tells of units that began and ended between two looks.
        run = read_run_note(store / SCRATCH)
        if run and told != (run.units, run.videos):
            told = run.units, run.videos
            console.print(escape(_totals(run)))
        time.sleep(every_s)


def _totals(run: RunNote) -> str:
    return f"{run.line}; {counted(run.units, 'unit')} in the store"


def account(store: Path) -> Iterator[str]:
    """Lines about a store. Raises StoreError where there is none, DamageFound for an index that cannot be read."""
    opened = open_store(store)
    root = opened.root
    yield f"{store}: {counted(len(root.files), 'file')}, {_bytes(sum(entry.bytes for entry in root.files.values()))}"
    for name in root.streams:
        yield from _stream(opened.stream(name))
    for name, entry in root.pending.items():
        rows = sum(ref.rows for ref in entry.shards)
        yield f"stream {name} is being made again under another configuration: {counted(rows, 'row')} so far"
    yield from _sets(root)
    for record in read_records(store)[-_LAST_RUNS:]:
        yield _run(record)
    holder = lease_holder(store)
    if holder:
        yield f"being written by {holder}"
        run = read_run_note(store / SCRATCH)
        yield from [_totals(run)] if run else []
        yield from (shard.line for shard in shards_in_progress(store))


def _stream(reader: StreamReader) -> Iterator[str]:
    entry = reader.entry
    rows = counted(int(reader.rows_per_video.sum()), "row")
    shape = " x ".join(map(str, reader.row_shape)) or "1"
    yield (
        f"stream {reader.name} ({entry.kind}): {rows} of {shape} {entry.dtype}, "
        f"{counted(len(reader.video_ids), 'video')}, {duration_words(reader.durations.sum())}, "
        f"{counted(len(entry.shards), 'shard')} ({entry.container})"
    )
    for reason, count in sorted(Counter(failure.reason for _, failure in reader.failures).items()):
        yield f"  failed: {count} {reason}"


def _sets(root: Root) -> Iterator[str]:
    outdated = outdated_sets(root)
    for name, entry in root.sets.items():
        splits = ", ".join(f"{windows} windows in {split}" for split, windows in entry.splits.items()) or "no windows"
        yield f"set {name} of stream {entry.stream}: {splits}" + (
            "; out of date, make it again with `python -m preprocess manifests CONFIG`" if name in outdated else ""
        )


class _PastRun(BaseModel):
    """What a run record says, as far as it is shown; records of earlier releases lack what was measured."""

    started: str
    host: str
    extracted: int
    ended: str | None
    stopped: bool = False
    spent: Spent = Spent()
    wall_s: float = 0.0
    advice: str = ""


def _run(record: dict[str, Any]) -> str:
    try:
        past = _PastRun.model_validate(record)
    except ValidationError as error:
        return f"a run record of another form: {first_fault(error)}"
    stopped = ", stopped early" if past.stopped or past.ended is None else ""
    line = f"run {past.started} on {past.host}: {counted(past.extracted, 'video')} worked on{stopped}"
    if not past.wall_s:
        return line
    told = f"{line} in {past.wall_s:.0f} s, {speed_words(past.spent.video_s, past.wall_s)}"
    return f"{told}; {past.advice}" if past.advice else told


def _table(title: str, shards: list[Growing], totals: str) -> Table:
    table = Table(
        "stream", "unit", "rows", "videos", "last growth", "host", title=escape(title), caption=escape(totals)
    )
    for shard in shards:
        done = f"{shard.videos} of {shard.of}"
        table.add_row(
            escape(shard.stream), str(shard.unit), str(shard.rows), done, f"{shard.age} ago", escape(shard.host)
        )
    return table


def _bytes(count: int) -> str:
    """A size for people, in powers of 1024."""
    size, units = float(count), iter(("bytes", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while size >= 1024 and unit != "TiB":
        size, unit = size / 1024, next(units)
    return f"{size:.4g} {unit}"
