"""`preprocess run`: inputs to a store. Every step can be killed; the next run goes on."""

from __future__ import annotations

import os
import platform
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

import torch

from preprocess.config import PreprocessConfig
from preprocess.engine import Work, run_units_here
from preprocess.extract.base import ExtractorSpec
from preprocess.inputs import InputVideo, read_inputs
from preprocess.keep import KeepResult, keep_captions
from preprocess.manifests import BuiltSet, build_set
from preprocess.plan import Plan, Unit, make_plan
from preprocess.shard import FinishedUnit
from preprocess.sources import SourceCache
from preprocess.streams import Change, StreamBook, stream_entry, wanted_specs
from shared.atomic import replace_file
from shared.errors import Failure, RequestError
from shared.fingerprint import sealed_json
from shared.schema import Source
from shared.store import StoreWriter, open_store, open_writer


@dataclass(frozen=True)
class Progress:
    """What the caller is told while a run goes on. Every function may be called many times."""

    note: Callable[[str], None]
    units: Callable[[int, int, int], None]  # videos done, videos in all, rows so far


@dataclass(frozen=True)
class RunResult:
    """What a run did, and where every input stands after it.

    failures: (video id, stream or "captions", Failure) of every input that lacks something.
    """

    inputs: int
    extracted: int
    keep: KeepResult
    sets: tuple[BuiltSet, ...]
    failures: tuple[tuple[str, str, Failure], ...]

    @property
    def did_nothing(self) -> bool:
        return not (self.extracted or self.keep.new or self.keep.changed or any(made.changed for made in self.sets))


def run(config: PreprocessConfig, progress: Progress, limit: int | None = None) -> RunResult:
    """Bring the store up to date with the inputs: captions kept, rows of every stream, manifest sets.

    limit: only the first inputs. Raises the ClipmillErrors of its steps; what was committed before stays.
    """
    inputs = read_inputs(config.inputs, config.root)[:limit]
    device = _device(config)
    specs = wanted_specs(config, device)
    wanted = {name: stream_entry(spec, config.container, config.decode) for name, spec in specs.items()}
    started = datetime.now(UTC)
    with open_writer(config.store) as writer, SourceCache(config.store) as sources:
        for path in writer.remove_leftovers():
            progress.note(f"removed {path}, left by a run that was stopped")
        kept = keep_captions(writer, inputs)
        book = StreamBook(writer, wanted, [video.video_id for video in inputs])
        plan = make_plan(
            inputs, book.entries, book.homes(), lambda video: _source(video, sources), shard_videos=config.shard_videos
        )
        _announce(plan, book.changes, progress)
        extracted = _extract(config, device, plan, book, sources, writer, progress)
        book.promote()
        sets = tuple(build_set(writer, name, section) for name, section in sorted(config.sets.items()))
        result = RunResult(len(inputs), extracted, kept, sets, _failures(writer, config, inputs))
        if not result.did_nothing:
            _record_run(writer, result, specs, started)
    return result


def make_sets(config: PreprocessConfig) -> tuple[BuiltSet, ...]:
    """`preprocess manifests`: the sets of a config, from what a finished store keeps. No media file is looked at.

    Raises RequestError when the config names no set, StoreError when there is no store.
    """
    if not config.sets:
        raise RequestError("the config names no manifest set: add one under `sets`")
    open_store(config.store)
    with open_writer(config.store) as writer:
        writer.remove_leftovers()
        return tuple(build_set(writer, name, section) for name, section in sorted(config.sets.items()))


def _device(config: PreprocessConfig) -> str:
    if config.device != "auto":
        return config.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _source(video: InputVideo, sources: SourceCache) -> Source | None:
    return None if video.failure else sources.source_of(video.video_path)


def _announce(plan: Plan, changes: Sequence[Change], progress: Progress) -> None:
    for change in changes:
        progress.note(
            f"stream {change.stream!r} is made again, its configuration changed: {'; '.join(change.differences)}"
        )
    if plan.units:
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(plan.reasons.items()))
        videos = sum(len(unit.videos) for unit in plan.units)
        progress.note(
            f"extracting {videos} videos in {len(plan.units)} units ({why}); {plan.done} are in the store already"
        )


def _extract(
    config: PreprocessConfig,
    device: str,
    plan: Plan,
    book: StreamBook,
    sources: SourceCache,
    writer: StoreWriter,
    progress: Progress,
) -> int:
    work = Work(dict(config.streams), book.entries, config.decode, writer.scratch.resolve(), device)
    total = sum(len(unit.videos) for unit in plan.units)
    done = rows = 0
    for finished in _engine(config, work, plan.units):
        book.commit(finished)
        for path, started in finished.found:
            if started.source is not None and started.mtime_ns is not None:
                sources.remember(path, started.source, started.mtime_ns)
        done += len(finished.unit.videos)
        rows += finished.rows
        progress.units(done, total, rows)
    return done


def _engine(config: PreprocessConfig, work: Work, units: Sequence[Unit]) -> Iterator[FinishedUnit]:
    if not units:
        return iter(())
    if config.engine == "here":
        return run_units_here(work, units)
    # Only here: importing Ray takes a second, and most commands need none of it.
    from preprocess.ray_engine import run_units

    return run_units(work, units, config.ray)


def _failures(
    writer: StoreWriter, config: PreprocessConfig, inputs: Sequence[InputVideo]
) -> tuple[tuple[str, str, Failure], ...]:
    ids = {video.video_id for video in inputs}
    found = []
    for name in config.streams:
        found += [
            (video_id, name, failure) for video_id, failure in writer.store.stream(name).failures if video_id in ids
        ]
    for name in config.sets:
        found += caption_failures(writer, name, ids)
    return tuple(sorted(set(found), key=lambda item: (item[0], item[1])))


def caption_failures(writer: StoreWriter, name: str, ids: set[str]) -> list[tuple[str, str, Failure]]:
    """What a set could not use of the captions of these videos."""
    rows = writer.store.manifest_set(name).failures
    return [
        (row["video_id"], "captions", Failure(row["reason"], row["stage"], row["message"]))
        for row in rows
        if row["stage"] == "captions" and row["video_id"] in ids
    ]


def _record_run(writer: StoreWriter, result: RunResult, specs: dict[str, ExtractorSpec], started: datetime) -> None:
    """What differs from run to run, beside the store's identity."""
    folder = writer.path / "runs"
    folder.mkdir(exist_ok=True)
    ended = datetime.now(UTC)
    content: dict[str, object] = {
        "started": started.isoformat(),
        "ended": ended.isoformat(),
        "host": socket.gethostname(),
        "machine": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)),
        "inputs": result.inputs,
        "extracted": result.extracted,
        "failures": dict(sorted(Counter(failure.reason for _, _, failure in result.failures).items())),
        "extractors": {name: spec.environment for name, spec in sorted(specs.items())},
        "versions": {name: version(name) for name in ("clipmill", "torch", "decord2", "ray", "transformers", "numpy")},
    }
    replace_file(folder / f"{started:%Y%m%dT%H%M%S%f}-{os.getpid()}.json", sealed_json(content))
