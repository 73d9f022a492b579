"""What ffmpeg says on its standard error: one event for every shown frame, and an outcome at the end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from queue import SimpleQueue
from typing import IO

FRAME = re.compile(
    rb"\[showinfo@(all|sel) @ [^]]*\] \[info\] n: *\d+ pts: *(-?\d+|NOPTS) .*?duration: *(-?\d+|NOPTS) .* iskey:(\d)"
)
# Without its prefix where a library's message before it did not end its line.
CONFIG = re.compile(rb"config in time_base: (\d+)/(\d+), frame_rate: (\d+)/(\d+)")
COUNTS = re.compile(rb"\(video\): (\d+) packets read \(\d+ bytes\); (\d+) frames decoded; (\d+) decode errors")
DAMAGED = re.compile(rb"corrupt decoded frame|File ended prematurely|Packet corrupt")
NO_DECODER = re.compile(rb"(?i)no decoder|decoder .*not found")
OUT_OF_TIME = re.compile(rb"received signal 24")


@dataclass(frozen=True)
class FrameEvent:
    """A frame passed a place in the filter graph. chosen: the place behind the selection, else the one before it.

    index: its number at that place. pts, ticks: time and duration in ticks of `time_base`, pts None where unknown.
    rate: frames per second that the decoder announces, 0 where unknown.
    """

    chosen: bool
    index: int
    pts: int | None
    ticks: int
    key: bool
    time_base: Fraction
    rate: Fraction


@dataclass
class Outcome:
    """What the log says besides frames; final once the process has ended.

    packets: read; errors: those that did not decode. Messages of the libraries are not kept: their order and number
    depend on how threads meet, and what is recorded about a video must not.
    """

    packets: int = 0
    errors: int = 0
    damaged: bool = False
    no_decoder: bool = False
    out_of_time: bool = False


def read_log(log: IO[bytes], events: SimpleQueue[FrameEvent | None], outcome: Outcome) -> None:
    """Read `log` to its end, putting an event for every frame and None at the end. Runs in a thread of its own.

    The log must be drained whatever the frames do, or the process would wait for ever.
    """
    time_base, rate = Fraction(1), Fraction(0)
    # Counted here: where the picture changes its size, ffmpeg makes the graph anew and its own count begins again.
    counts = {b"all": 0, b"sel": 0}
    for line in log:
        if match := FRAME.search(line):
            place, pts, ticks, key = match.groups()
            events.put(
                FrameEvent(
                    chosen=place == b"sel",
                    index=counts[place],
                    pts=None if pts == b"NOPTS" else int(pts),
                    ticks=0 if ticks == b"NOPTS" else int(ticks),
                    key=key == b"1",
                    time_base=time_base,
                    rate=rate,
                )
            )
            counts[place] += 1
            # Another thread's message may have ended up in the line.
            outcome.damaged |= bool(DAMAGED.search(line))
        elif match := CONFIG.search(line):
            over, under, frames, seconds = (int(part) for part in match.groups())
            time_base, rate = Fraction(over, under), Fraction(frames, seconds or 1)
        else:
            _note(line, outcome)
    events.put(None)


def _note(line: bytes, outcome: Outcome) -> None:
    if match := COUNTS.search(line):
        outcome.packets, outcome.errors = int(match[1]), int(match[3])
    outcome.damaged |= bool(DAMAGED.search(line))
    outcome.no_decoder |= bool(NO_DECODER.search(line))
    outcome.out_of_time |= bool(OUT_OF_TIME.search(line))
