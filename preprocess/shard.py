"""One unit of work: videos in, one finished shard per stream out.

Frames come as events from whoever decodes (`feed`), clips are cut from them, batches filled across videos, rows
written. Nothing here knows how many workers there are, and nothing that it writes depends on it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from preprocess.decode import Clip, ClipAssembler, FrameBlock, VideoInfo
from preprocess.decode.grid import Grid, KeyGrid
from preprocess.extract.base import Extractor
from preprocess.extract.batcher import FixedBatcher
from preprocess.feed import Ended, Event, Opened, Started
from preprocess.in_progress import GrowingShard, NoteWriter
from preprocess.meter import Spent, Stopwatch
from preprocess.plan import Unit, UnitVideo
from preprocess.scratch import bring_home
from shared.errors import Failure
from shared.schema import Source, StreamEntry
from shared.shard_writer import BadRowsError, FinishedShard, ShardWriter

# A feed turns a unit's videos into their events, in the unit's order; it may decode ahead.
Feed = Callable[[Sequence[UnitVideo]], Iterator[tuple[UnitVideo, Iterator[Event]]]]


@dataclass(frozen=True)
class StreamJob:
    """One stream of the run: its facts and the extractor that makes its rows."""

    entry: StreamEntry
    extractor: Extractor


@dataclass(frozen=True)
class FinishedUnit:
    """What a unit made, still in scratch. `found`: the start of each video's events, for the cache of identities."""

    unit: Unit
    shards: tuple[FinishedShard, ...]
    found: tuple[tuple[Path, Started], ...]
    spent: Spent


def extract_unit(
    unit: Unit, jobs: dict[str, StreamJob], feed: Feed, scratch: Path, local: Path | None = None
) -> FinishedUnit:
    """Do a unit's work. Raises what the feed and the file system raise; leaves nothing in the store.

    scratch: the worker's own folder in the store's scratch, where the finished shards lie in the end. local: where they
    grow instead, a folder on this host's own disk.
    """
    watch = Stopwatch()
    found = []
    with ExitStack() as open_files:
        streams = {}
        for name in unit.streams:
            writer = ShardWriter(local or scratch, name, jobs[name].entry, unit.ids[name], unit.number)
            streams[name] = StreamShard(name, jobs[name], open_files.enter_context(writer), watch)
        state = _State(NoteWriter(scratch, unit), watch, tuple(streams.values()))
        state.tell()
        for video, events in feed(unit.videos):
            started = _run_video(video, events, [streams[name] for name in video.streams], state)
            if started is not None:
                found.append((video.path, started))
        shards = tuple(stream.finish() for stream in streams.values())
        if local is not None:
            with watch.during("writing"):
                shards = bring_home(shards, scratch)
    spent = state.spent()
    state.note.write(spent, {})  # nothing of it grows any more; until the commit, its figures stand here
    return FinishedUnit(unit, shards, tuple(found), spent)


@dataclass
class _State:
    """How far a unit is, and its note that says so."""

    note: NoteWriter
    watch: Stopwatch
    streams: tuple[StreamShard, ...]
    done: Spent = field(default_factory=Spent)

    def spent(self) -> Spent:
        return self.done + self.watch.spent() + Spent(rows=sum(stream.rows for stream in self.streams))

    def tell(self) -> None:
        """Where something may have grown; what is written is written once a second."""
        if self.note.is_due:
            self.note.write(self.spent(), {stream.name: stream.growing for stream in self.streams})


def _run_video(
    video: UnitVideo, events: Iterator[Event], streams: Sequence[StreamShard], state: _State
) -> Started | None:
    started: Started | None = None
    while (event := _next(events, state.watch)) is not None:
        if isinstance(event, Started):
            # A second start is a decoder that died and was started again: what it had sent is taken back.
            started = event
            for stream in streams:
                stream.begin(video.video_id, event.source)
        elif isinstance(event, Opened):
            for stream, grid in zip(streams, event.grids, strict=True):
                stream.opened(grid)
        elif isinstance(event, FrameBlock):
            for stream in streams:
                stream.block(event)
        elif isinstance(event, Ended):
            for stream in streams:
                stream.end(event.info)
            state.done += Spent(video_s=event.info.duration, decode_cpu_s=event.cpu_s)
        elif isinstance(event, Failure):
            for stream in streams:
                stream.fail(video.video_id, event)
        state.tell()
    state.done += Spent(videos=1)
    return started


def _next(events: Iterator[Event], watch: Stopwatch) -> Event | None:
    with watch.during("waiting"):
        return next(events, None)


@dataclass
class _Open:
    """A video between its first clip and its last row."""

    video_id: str
    source: Source | None
    spans: list[tuple[float, float]] = field(default_factory=list)
    valid: list[int] = field(default_factory=list)
    rows: int = 0
    info: VideoInfo | None = None


class StreamShard:
    """One stream's side of a unit: clips are added as they come, rows come back later and in order.

    Rows of a video may arrive after the next video has begun (its clips share a batch), so several are open at once;
    the writer sees them one after another because batches are first in, first out.
    """

    def __init__(self, name: str, job: StreamJob, writer: ShardWriter, watch: Stopwatch) -> None:
        self.name = name
        self._entry = job.entry
        self._writer = writer
        self._watch = watch
        self._batcher = FixedBatcher(job.extractor, self, name)
        self._open: deque[_Open] = deque()
        self._current: _Open | None = None
        self._assembler: ClipAssembler | None = None
        self.failed: set[str] = set()

    @property
    def rows(self) -> int:
        """Rows written so far."""
        return self._writer.rows

    @property
    def growing(self) -> GrowingShard:
        """What others may know of the shard before it is finished."""
        row_bytes = math.prod(self._entry.row_shape) * np.dtype(self._entry.dtype).itemsize
        path = str(self._writer.growing)
        return GrowingShard(path=path, container=self._entry.container, row_bytes=row_bytes, rows=self.rows)

    def begin(self, video_id: str, source: Source | None) -> None:
        if video_id in self.failed:
            return
        if self._current is not None:
            self._take_back(self._current)
        self._current = _Open(video_id, source)
        self._open.append(self._current)
        self._assembler = None

    def opened(self, grid: Grid | KeyGrid) -> None:
        self._assembler = ClipAssembler(grid)

    def block(self, block: FrameBlock) -> None:
        if self._current is not None and self._assembler is not None:
            self._add(self._current, self._assembler.push(block))

    def end(self, info: VideoInfo) -> None:
        if self._current is None or self._assembler is None:
            return
        video = self._current
        if not self._add(video, self._assembler.finish(info.duration)):
            return
        self._current = self._assembler = None
        if not video.spans:
            self.fail(video.video_id, Failure("no_frames", "decode", "the file opens but shows no frame"))
            return
        video.info = info
        self._close_finished()

    def fail(self, video_id: str, failure: Failure) -> None:
        """The video yields nothing in this stream. Rows of it that were written are taken back."""
        if video_id in self.failed:
            return
        video = next((v for v in self._open if v.video_id == video_id), None)
        if video is not None:
            self._take_back(video)
        self._writer.fail_video(video_id, failure, video.source if video else None)
        self.failed.add(video_id)

    def finish(self) -> FinishedShard:
        with self._watch.during("model"):
            self._batcher.flush()
        with self._watch.during("writing"):
            return self._writer.finish()

    def put(self, video: str, rows: np.ndarray) -> None:
        """Rows from the batcher."""
        open_video = self._open[0]
        assert open_video.video_id == video, "rows come back in the order in which clips were added"
        try:
            with self._watch.during("writing"):
                self._writer.append(rows)
        except BadRowsError as error:
            self.fail(video, error.failure)
            return
        open_video.rows += len(rows)
        self._close_finished()

    def _add(self, video: _Open, clips: Iterator[Clip]) -> bool:
        """Pass clips on; False when rows that came back meanwhile were refused, so that the video is no longer open."""
        for clip in clips:
            video.spans.append((clip.start, clip.end))
            video.valid.append(0 if clip.valid == len(clip.frames_THWC) else clip.valid)
            with self._watch.during("model"):
                self._batcher.add(video.video_id, clip.frames_THWC)
            if self._current is not video:
                return False
        return True

    def _close_finished(self) -> None:
        """Close the first open video once it has ended and all its rows are here."""
        while self._open and self._open[0].info is not None and self._open[0].rows == len(self._open[0].spans):
            video = self._open.popleft()
            assert video.info is not None
            if video.source is None:
                raise ValueError(f"{video.video_id}: decoded without an identity")
            self._writer.end_video(
                video.video_id,
                source=video.source,
                duration=video.info.duration,
                decoder=video.info.backend,
                partial=video.info.partial,
                spans=np.array(video.spans, np.float64).reshape(-1, 2),
                valid=np.array(video.valid, np.int32),
            )

    def _take_back(self, video: _Open) -> None:
        """Forget a video: its pending clips, its written rows, its place in the queue."""
        self._batcher.discard(video.video_id)
        # What earlier videos still wait for is computed now, so that the writer's open rows are this video's alone.
        if self._open and self._open[0] is not video:
            with self._watch.during("model"):
                self._batcher.flush()
        self._open.remove(video)
        self._writer.drop_open_rows()
        if self._current is video:
            self._current = self._assembler = None
