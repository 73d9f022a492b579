"""What is to be done: videos that need rows, cut into units. Depends on inputs, config and the store alone.

A unit is what of one chunk of the input manifest is not in the store yet. Chunks are cut by walking the whole
manifest, and units commit whole, so what remains after a kill is what would have come next anyway.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from preprocess.inputs import InputVideo
from shared.edit.ids import DAMAGED
from shared.errors import Failure
from shared.fingerprint import fingerprint
from shared.schema import ShardIndex, Source, StreamEntry, stream_folder
from shared.stream_index import read_shard_index

MAX_SHARD_VIDEOS = 1024
# Small jobs are cut into about this many units, so that all workers of one machine have something to do.
_SMALL_JOB_UNITS = 16


@dataclass(frozen=True)
class UnitVideo:
    """One video of a unit and the streams that need it. given: its path as the input manifest has it."""

    video_id: str
    path: Path
    streams: tuple[str, ...]
    failure: Failure | None = None
    given: str = ""


@dataclass(frozen=True)
class Unit:
    """The work that makes one shard of every stream it names.

    ids: for each stream, what identifies its part of the work across runs, whichever streams are made along with it.
    """

    number: int
    ids: dict[str, str]
    videos: tuple[UnitVideo, ...]

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(sorted(self.ids))


@dataclass(frozen=True)
class Plan:
    """units: in order. reasons: how many (video, stream) pairs need work, by why. done: how many need none.

    whole: videos that need nothing in any stream. absent: videos whose file cannot be read now and whose rows are kept.
    """

    units: tuple[Unit, ...]
    reasons: dict[str, int]
    done: int
    whole: int
    absent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Home:
    """Where a video stands in a stream: its shard, and its source or failure when it was last tried."""

    shard: str
    source: Source | None
    failure_reason: str | None


def make_plan(
    inputs: Sequence[InputVideo],
    streams: dict[str, StreamEntry],
    homes: dict[str, dict[str, Home]],
    source_of: Callable[[InputVideo], Source | None],
    *,
    shard_videos: int | None = None,
    removed: Collection[str] = frozenset(),
    retry: Callable[[str, str, str], bool] = lambda *_: False,
) -> Plan:
    """Cut the work into units.

    streams: the streams wanted, by name. homes: for each, where its videos stand now under the same fingerprint.
    source_of: today's identity of a media file, None when there is none; asked only for videos that have a home.
    shard_videos: videos of a chunk (default: `default_shard_videos`). retry: whether to try a failure again, by stream,
    video id and reason.
    """
    size = shard_videos or default_shard_videos(len(inputs))
    damaged = {
        stream: {home.shard for home in found.values() if home.failure_reason == DAMAGED}
        for stream, found in homes.items()
    }
    reasons: Counter[str] = Counter()
    done = whole = 0
    units = []
    absent = []
    for number, start in enumerate(range(0, len(inputs), size)):
        members = []
        for video in inputs[start : start + size]:
            if video.video_id in removed:
                continue
            needed = []
            found = {stream: homes.get(stream, {}).get(video.video_id) for stream in sorted(streams)}
            # Asked once a video: it may mean reading the whole file.
            source = source_of(video) if any(found.values()) else None
            if source is None and any(home and home.failure_reason is None for home in found.values()):
                absent.append(video.video_id)
            for stream, home in found.items():
                reason = _why(home, source, partial(retry, stream, video.video_id))
                reason = reason or _beside_damage(home, source, damaged.get(stream, ()))
                if reason is None:
                    done += 1
                else:
                    reasons[reason] += 1
                    needed.append(stream)
            if needed:
                members.append(UnitVideo(video.video_id, video.video_path, tuple(needed), video.failure, video.given))
            whole += not needed
        if members:
            units.append(Unit(number, _unit_ids(number, members, streams), tuple(members)))
    return Plan(tuple(units), dict(reasons), done, whole, tuple(absent))


def default_shard_videos(count: int) -> int:
    """Videos per shard: enough shards to share out a small job, never more than 1,024 videos in one."""
    return max(8, min(MAX_SHARD_VIDEOS, math.ceil(count / _SMALL_JOB_UNITS)))


def read_homes(store: Path, stream: str, entry: StreamEntry) -> dict[str, Home]:
    """Where every video of a stream stands."""
    homes: dict[str, Home] = {}
    for ref in entry.shards:
        index = read_shard_index(store / stream_folder(entry.kind, stream), ref.name)
        homes.update(_homes_in(index, ref.name))
    return homes


def _homes_in(index: ShardIndex, shard: str) -> dict[str, Home]:
    done = {video.id: Home(shard, video.source, None) for video in index.videos}
    return done | {record.id: Home(shard, record.source, record.reason) for record in index.failed}


def _why(home: Home | None, source: Source | None, retry: Callable[[str], bool]) -> str | None:
    """Why a video needs rows, or None when what the store has of it stands.

    Rows outlive their video: they go only by a new version of it, or by being removed.
    """
    if home is None:
        return "new"
    if source is None and home.failure_reason is None:
        return None  # a disk that is not mounted, a root mistyped: what was extracted stays
    if home.source != source:
        return "input changed"
    if home.failure_reason is not None and retry(home.failure_reason):
        return "failed before"
    return None


def _beside_damage(home: Home | None, source: Source | None, damaged: Collection[str]) -> str | None:
    """A shard that `repair` took videos out of is made again as a whole, so that it becomes what it was.

    Except for rows that are still there and whose input is not: nothing could make them again.
    """
    if home is None or home.shard not in damaged or (source is None and home.failure_reason is None):
        return None
    return DAMAGED


def _unit_ids(number: int, members: Sequence[UnitVideo], streams: dict[str, StreamEntry]) -> dict[str, str]:
    videos: dict[str, list[str]] = {}
    for member in members:
        for stream in member.streams:
            videos.setdefault(stream, []).append(member.video_id)
    return {stream: fingerprint([number, streams[stream].fingerprint, ids]) for stream, ids in sorted(videos.items())}
