"""From one media file to a stream of events: started, opened, blocks of frames, and one end, good or bad.

Runs in a decode task (or in the caller's own process): it knows nothing of who consumes it.
"""

from __future__ import annotations

import resource
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from preprocess.decode import DecodeFailure, DecodeOptions, FrameBlock, Sampling, VideoInfo, open_video
from preprocess.decode.grid import Grid, KeyGrid
from preprocess.inputs import not_there
from shared.errors import Failure
from shared.fingerprint import hash_file
from shared.schema import Source


@dataclass(frozen=True)
class Begun:
    """The worker is there and has not touched the file yet: its clock begins."""


@dataclass(frozen=True)
class Started:
    """The file has been looked at. `source`, `mtime_ns`: what was found, None when there is no readable file."""

    source: Source | None
    mtime_ns: int | None = None


@dataclass(frozen=True)
class Opened:
    """The file is open. `grids`: for each sampling of the order, the instants that its rows need."""

    grids: tuple[Grid | KeyGrid, ...]


@dataclass(frozen=True)
class Ended:
    """All frames have been sent. `cpu_s`: CPU seconds that decoding took, helper processes included."""

    info: VideoInfo
    cpu_s: float = 0.0


Event = Begun | Started | Opened | FrameBlock | Ended | Failure


@dataclass(frozen=True)
class DecodeOrder:
    """What a decode task needs to know, and nothing more.

    samplings: whose frames are wanted. strategies, short_side: of all streams of the run, wanted here or not, so that
    a stream is decoded in the same way whichever streams a video still needs. given: the path as the manifest has it.
    """

    path: Path
    samplings: tuple[Sampling, ...]
    options: DecodeOptions
    short_side: int | None
    strategies: tuple[str, ...]
    failure: Failure | None = None
    given: str = ""


def decode_events(order: DecodeOrder) -> Iterator[Event]:
    """The events of one file, in order. A bad file ends in a Failure, never in an exception."""
    events = _events(order)
    cpu_s = 0.0
    while True:
        # Only our own part: the consumer may run in this process between two events.
        before = _cpu_seconds()
        event = next(events, None)
        cpu_s += _cpu_seconds() - before
        if event is None:
            return
        yield replace(event, cpu_s=cpu_s) if isinstance(event, Ended) else event


def decode_packs(order: DecodeOrder) -> Iterator[list[Event]]:
    """`decode_events` in fewer messages: the beginning, then one for each block with what came before it, then the end.

    Sending costs about a millisecond however little is sent, and a limit on messages unread is one on blocks.
    """
    pack: list[Event] = []
    for event in decode_events(order):
        pack.append(event)
        if isinstance(event, (Begun, FrameBlock)):
            yield pack
            pack = []
    yield pack


def _events(order: DecodeOrder) -> Iterator[Event]:
    yield Begun()
    if order.failure is not None:
        yield Started(None)
        yield order.failure
        return
    name = order.given or order.path.name
    try:
        started = _identify(order.path)
    except OSError as error:
        yield Started(None)
        yield Failure("missing_file", "decode", not_there(name, f"cannot be read: {error.strerror}"))
        return
    yield started
    try:
        if order.path.exists() and not order.path.is_file():
            yield Failure("missing_file", "decode", not_there(name, "not a regular file"))
            return
        with open_video(order.path, order.samplings, order.options, order.short_side, order.strategies) as video:
            yield Opened(tuple(video.grids))
            yield from video
            yield Ended(video.info)
    except DecodeFailure as error:
        yield error.failure


def _cpu_seconds() -> float:
    """Of this process and of the helpers that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _identify(path: Path) -> Started:
    """Raises OSError where the file cannot be read."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return Started(None)  # reading a pipe or a device would never end
    return Started(Source(bytes=status.st_size, xxh3=hash_file(path)), status.st_mtime_ns)


def common_short_side(short_sides: Sequence[int | None]) -> int | None:
    """The shorter side to decode at so that no extractor gets less than it wants; None keeps full size."""
    if any(side is None for side in short_sides):
        return None
    return max(side for side in short_sides if side is not None)
