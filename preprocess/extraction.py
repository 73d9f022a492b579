"""The streams of a store brought up to date: plan, engine, commits, and smaller batches where memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from preprocess.config import PreprocessConfig, RayOptions
from preprocess.engine import Work, run_units_here
from preprocess.extract import with_smaller_batch
from preprocess.extract.runtime import ComputeOutOfMemory
from preprocess.inputs import InputVideo
from preprocess.plan import Home, Plan, Unit, make_plan, read_homes
from preprocess.record import RunRecord
from preprocess.shard import FinishedUnit
from preprocess.sources import SourceCache
from preprocess.streams import Change, StreamBook, Wanted, wanted_stream
from preprocess.watch import Figures, Watch
from shared.edit.ids import listing, removed_ids
from shared.errors import RequestError
from shared.schema import Source
from shared.store import StoreWriter
from shared.words import counted

RETRY_ALL = "all"


@dataclass(frozen=True)
class Progress:
    """What the caller is told while a run goes on. Every function may be called many times, `units` from a thread."""

    note: Callable[[str], None]
    units: Callable[[Figures], None]


@dataclass(frozen=True)
class Extraction:
    """What extracting needs of a run."""

    config: PreprocessConfig
    device: str
    inputs: Sequence[InputVideo]
    writer: StoreWriter
    sources: SourceCache
    record: RunRecord
    progress: Progress
    _tried: set[tuple[str, str]] = field(default_factory=set)  # (stream, video) that this run has done

    def run(self, wanted: dict[str, Wanted], retry: str | None) -> dict[str, Wanted]:
        """Extract what the streams lack, and return them as they were made: perhaps with smaller batches.

        retry: also what has failed before for this reason, or `RETRY_ALL`.
        Raises RequestError for a reason that no failure has, and what the engine raises.
        """
        wants_retry = self._retry(wanted, retry)

        def again(stream: str, video_id: str, reason: str) -> bool:
            # Planned again after running out of memory, what has failed in this run has had its second try.
            return wants_retry(reason) and (stream, video_id) not in self._tried

        while True:
            entries = {name: stream.entry for name, stream in wanted.items()}
            book = StreamBook(self.writer, entries, [video.video_id for video in self.inputs])
            self._announce_changes(book.changes)
            if copied := book.carry_over():
                self.record.copied_shards += copied
                self.progress.note(f"{counted(copied, 'shard')} copied, nothing of them extracted")
            plan = make_plan(
                self.inputs,
                book.entries,
                book.homes(),
                self._source,
                shard_videos=self.config.shard_videos,
                removed=removed_ids(self.writer.store),
                retry=again,
            )
            self._announce(plan)
            try:
                self._extract(wanted, plan, book)
            except ComputeOutOfMemory as signal:
                wanted = wanted | {signal.stream: self._smaller(wanted[signal.stream], signal)}
            else:
                book.promote()
                return wanted

    def _extract(self, wanted: dict[str, Wanted], plan: Plan, book: StreamBook) -> None:
        sections = {name: stream.section for name, stream in wanted.items()}
        work = Work(sections, book.entries, self.config.decode, self.writer.scratch.resolve(), self.device)
        if not plan.units:
            return
        total = sum(len(unit.videos) for unit in plan.units)
        with Watch(total, work.scratch, self.progress.units) as watch, closing(self._engine(work, plan.units)) as done:
            try:
                for finished in done:
                    book.commit(finished)
                    self._remember(finished)
                    watch.committed(finished)
            finally:
                self.record.wall_s += watch.figures().wall_s

    def _remember(self, finished: FinishedUnit) -> None:
        for path, started in finished.found:
            if started.source is not None and started.mtime_ns is not None:
                self.sources.remember(path, started.source, started.mtime_ns)
        self._tried.update((name, video.video_id) for video in finished.unit.videos for name in video.streams)
        self.record.extracted += len(finished.unit.videos)
        self.record.spent += finished.spent

    def _engine(self, work: Work, units: Sequence[Unit]) -> Generator[FinishedUnit]:
        if self.config.engine == "here":
            return run_units_here(work, units)
        # Only here: importing Ray takes a second, and most commands need none of it.
        from preprocess.ray_engine import run_units

        return run_units(work, units, self._ray)

    @property
    def _ray(self) -> RayOptions:
        """Workers have other working directories than the driver."""
        scratch = self.config.ray.scratch
        return self.config.ray.model_copy(update={"scratch": scratch and scratch.expanduser().absolute()})

    def _smaller(self, stream: Wanted, signal: ComputeOutOfMemory) -> Wanted:
        """The stream with half the batch; rows of two sizes may differ, so all of it is made with the smaller one."""
        section = with_smaller_batch(stream.section, signal)
        smaller = wanted_stream(self.config, section, self.device)
        self.record.out_of_memory(stream.entry.fingerprint, signal, smaller.spec.batch_size)
        self.progress.note(
            f"stream {signal.stream!r}: out of memory with {signal.batch_size} clips per call; made with "
            f"{smaller.spec.batch_size} from here on, also by later runs (noted in {self.record.path})\n"
            f"{signal.memory_summary}"
        )
        return smaller

    def _retry(self, wanted: Iterable[str], reason: str | None) -> Callable[[str], bool]:
        if reason is None or reason == RETRY_ALL:
            return lambda _: reason is not None
        known = {home.failure_reason for home in self._homes(wanted)} - {None}
        if reason not in known:
            listed = ", ".join(sorted(filter(None, known)))
            raise RequestError(
                f"no video of {self.writer.path} has failed with reason {reason!r}; "
                + (f"the reasons there are: {listed}" if known else "none has failed at all")
            )
        return lambda found: found == reason

    def _homes(self, names: Iterable[str]) -> Iterator[Home]:
        root = self.writer.root
        for table in (root.streams, root.pending):
            for name in names:
                if name in table:
                    yield from read_homes(self.writer.path, name, table[name]).values()

    def _source(self, video: InputVideo) -> Source | None:
        return None if video.failure else self.sources.source_of(video.video_path)

    def _announce_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            done = "keeps what this does not touch" if change.keeps_rows else "is made again"
            self.progress.note(
                f"stream {change.stream!r} {done}, its configuration changed: {'; '.join(change.differences)}"
            )
            entries = self.writer.root.sets.items()
            others = [n for n, entry in entries if entry.stream == change.stream and n not in self.config.sets]
            if others:
                self.progress.note(
                    f"sets of it that this config does not name must be made again afterwards: {listing(others)}"
                )

    def _announce(self, plan: Plan) -> None:
        if plan.absent:
            self.progress.note(
                f"{counted(len(plan.absent), 'input')} cannot be read now, such as {plan.absent[0]!r}: "
                "rows that are there are kept"
            )
        if plan.units:
            why = ", ".join(f"{count} {reason}" for reason, count in sorted(plan.reasons.items()))
            there = f"; {counted(plan.whole, 'video')} in the store already" if plan.whole else ""
            self.progress.note(
                f"extracting {_amount(plan)} in {counted(len(plan.units), 'unit')}, a shard each ({why}){there}"
            )


def _amount(plan: Plan) -> str:
    """`14 videos x 3 streams`; videos need not all lack the same streams."""
    needs = [video.streams for unit in plan.units for video in unit.videos]
    streams, pairs = len(set().union(*needs)), sum(map(len, needs))
    videos = counted(len(needs), "video")
    if pairs == len(needs) * streams:
        return videos if streams == 1 else f"{videos} x {streams} streams"
    return f"{videos}, {pairs} times one of {streams} streams"
