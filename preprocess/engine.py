"""Doing units one after another in this process: for small jobs, for tests, for stepping through with a debugger.

The Ray engine (ray_engine.py) does the same work with the same functions on many workers. Here nothing can be killed
on a deadline, so a decoder that hangs hangs the run.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from preprocess.decode import DecodeOptions
from preprocess.extract import ExtractorSection, build_extractor
from preprocess.extract.runtime import configure_torch_for_determinism
from preprocess.feed import DecodeOrder, Event, common_short_side, decode_events
from preprocess.plan import Unit, UnitVideo
from preprocess.shard import Feed, FinishedUnit, StreamJob, extract_unit
from shared.schema import StreamEntry


@dataclass(frozen=True)
class Work:
    """Everything a worker needs to do units of a run: small, and the same for all of them."""

    sections: dict[str, ExtractorSection]
    entries: dict[str, StreamEntry]
    decode: DecodeOptions
    scratch: Path
    device: str


def build_jobs(work: Work) -> dict[str, StreamJob]:
    """The extractors on their device. Raises EnvironmentLacking where weights are missing."""
    configure_torch_for_determinism()
    return {
        name: StreamJob(work.entries[name], build_extractor(section, work.device))
        for name, section in work.sections.items()
    }


def decode_order(video: UnitVideo, jobs: dict[str, StreamJob], options: DecodeOptions) -> DecodeOrder:
    """What to decode for the streams that this video needs."""
    every = [job.extractor.spec for _, job in sorted(jobs.items())]
    return DecodeOrder(
        path=video.path,
        samplings=tuple(jobs[name].extractor.spec.sampling for name in video.streams),
        options=options,
        short_side=common_short_side([spec.short_side for spec in every]),
        strategies=tuple(spec.sampling.strategy for spec in every),
        failure=video.failure,
        given=video.given,
    )


def run_units_here(work: Work, units: Sequence[Unit]) -> Generator[FinishedUnit]:
    """Do the units in order in this process."""
    jobs = build_jobs(work)
    for unit in units:
        yield extract_unit(unit, jobs, _feed_here(work, jobs), work.scratch / "here")


def _feed_here(work: Work, jobs: dict[str, StreamJob]) -> Feed:
    def feed(videos: Sequence[UnitVideo]) -> Iterator[tuple[UnitVideo, Iterator[Event]]]:
        for video in videos:
            yield video, decode_events(decode_order(video, jobs, work.decode))

    return feed
