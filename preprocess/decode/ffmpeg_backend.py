"""Frames from an ffmpeg process over a pipe, each with the time that the decoder itself gives it.

The filter graph logs every shown frame before choosing, so frame numbers and times never depend on the choice. Which
frames travel is an over-estimate; the exact choice is made here, where the next frame's time is known.
"""

from __future__ import annotations

import fcntl
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO

import numpy as np
from numpy.typing import NDArray

from preprocess.decode.ffmpeg_command import command, selection, zero_of
from preprocess.decode.ffmpeg_log import FrameEvent, Outcome, read_log
from preprocess.decode.grid import Needs
from preprocess.decode.media_probe import Probe
from preprocess.decode.options import DecodeOptions
from preprocess.decode.packets import ANCHORED
from preprocess.decode.video import Frame, fail

# Several frames: each time that the pipe is full costs two switches between processes.
PIPE_BYTES = 2**20


class SelectionMissedError(Exception):
    """A needed frame was not among those let through: decode again and let all through."""


class _PipeEndedError(Exception):
    """The process ended before it wrote a frame that it had logged."""


@dataclass
class _Waiting:
    """A shown frame whose successor, or whose pixels, are not known yet."""

    index: int
    time: float
    key: bool
    pts: int | None
    frame_HWC: NDArray[np.uint8] | None = None


class FfmpegFrames:
    """Iterate over the frames that `needs` ask for, in order of showing.

    Afterwards: `outcome`, `shown` (frames shown), `end` (of the video, seconds) and `status` (of the process).
    choose: let only the frames through that are needed. key_only: decode key frames alone, which needs a trusted table.
    Use as a context manager: leaving it ends the process, whatever it does, and waits for it.
    Raises SelectionMissedError (everything before it has been yielded), DecodeFailure, EnvironmentLacking.
    """

    def __init__(
        self,
        probe: Probe,
        needs: Sequence[Needs],
        size: tuple[int, int],
        options: DecodeOptions,
        choose: bool = True,
        key_only: bool = False,
    ) -> None:
        self.outcome, self.shown, self.end, self.status = Outcome(), 0, 0.0, 0
        self._probe, self._needs, self._size, self._options = probe, needs, size, options
        # Frame numbers that must come out one after the other when key frames are decoded alone.
        self._keys = deque(np.flatnonzero(probe.table.key_T).tolist()) if key_only else None
        self._select = selection(probe, needs) if choose and not key_only else None
        self._first_pts: int | None = None
        self._last_packet = int(probe.table.pts_T[-1]) if len(probe.table.pts_T) else 0
        self._waiting: deque[_Waiting] = deque()
        self._passed = -1  # number of the last frame known to be let through
        self._events: SimpleQueue[FrameEvent | None] = SimpleQueue()
        self._process = subprocess.Popen(
            command(probe, size, options, self._select, key_only),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._pixels, log = _pipes(self._process)
        _widen(self._pixels)
        arguments = (log, self._events, self.outcome)
        self._log = threading.Thread(target=read_log, args=arguments, name="ffmpeg log", daemon=True)
        self._log.start()

    def __enter__(self) -> FfmpegFrames:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.join()
        for pipe in _pipes(self._process):
            pipe.close()

    def __iter__(self) -> Iterator[Frame]:
        last: FrameEvent | None = None
        try:
            while (event := self._events.get()) is not None:
                if not event.chosen:
                    last = event
                    self._see(event)
                if event.chosen or self._select is None:
                    self._receive(event)
                yield from self._decided(ended=False)
        except _PipeEndedError:
            self.outcome.damaged = True
        self.status = self._process.wait()
        if last is not None:
            self.end = self._waiting[-1].time + self._duration(last)
        yield from self._decided(ended=True)
        if self._keys:
            raise SelectionMissedError

    def _see(self, event: FrameEvent) -> None:
        """A frame is shown: its time, never before the previous one's."""
        if self._first_pts is None:
            self._first_pts = event.pts
        time = self._seconds(event)
        if self._waiting:
            time = max(time, self._waiting[-1].time)
        index, key = self._place(event)
        self._waiting.append(_Waiting(index, time, key or index == 0, event.pts))
        self.shown = index + 1
        limits = self._options
        if self.shown > limits.max_frames:
            fail("too_large", f"{self._probe.path.name} shows over {limits.max_frames} frames, the limit max_frames")
        if time > limits.max_seconds:
            fail("too_large", f"{self._probe.path.name} is longer than {limits.max_seconds:g} s, the limit max_seconds")

    def _place(self, event: FrameEvent) -> tuple[int, bool]:
        """(number in order of showing, key frame or not), by the packets where they can be trusted.

        Packets and decoders do not always agree on what a key frame is, and every backend must say the same.
        """
        table = self._probe.table
        if self._keys is not None:
            # Some decoders swallow key frames of open groups of pictures in this mode.
            if not self._keys or table.pts_T[self._keys[0]] != event.pts:
                raise SelectionMissedError
            return self._keys.popleft(), True
        known = table.trusted and event.index < len(table.pts_T) and table.pts_T[event.index] == event.pts
        return event.index, bool(table.key_T[event.index]) if known else event.key

    def _seconds(self, event: FrameEvent) -> float:
        over, under = event.time_base.numerator, event.time_base.denominator
        anchored = self._probe.demuxer in ANCHORED
        # Frames that come out after the last packet have no time of their own: the decoder counts on in single ticks.
        flushed = anchored and event.pts is not None and event.pts > self._last_packet
        if event.pts is None or (flushed and self._waiting):
            previous = self._waiting[-1].time if self._waiting else self._probe.info.start
            return previous + (1 / self._rate(event) if self._waiting else 0.0)
        if anchored:
            return (event.pts - (self._first_pts or 0)) * over / under + self._probe.info.start
        return event.pts * over / under - zero_of(self._probe)

    def _rate(self, event: FrameEvent) -> float:
        return float(event.rate) or self._probe.rate

    def _duration(self, last: FrameEvent) -> float:
        """Seconds that the last frame is shown, by the rule that every backend follows."""
        table = self._probe.table
        if table.trusted:
            return float(table.last_ticks * self._probe.time_base) or 1 / self._probe.rate
        return 1 / self._rate(last)

    def _receive(self, event: FrameEvent) -> None:
        """Take a frame's pixels off the pipe at once, or ffmpeg could not go on to the frames that decide about it."""
        width, height = self._size
        frame_HWC = np.empty((height, width, 3), dtype=np.uint8)
        if self._pixels.readinto(frame_HWC.data) < frame_HWC.nbytes:  # type: ignore[attr-defined]
            raise _PipeEndedError
        for waiting in self._waiting:
            if waiting.pts == event.pts and waiting.frame_HWC is None:
                waiting.frame_HWC = frame_HWC
                self._passed = waiting.index
                return

    def _decided(self, ended: bool) -> Iterator[Frame]:
        """The frames at the front of the queue about which everything is known."""
        while len(self._waiting) > (0 if ended else 1):
            front = self._waiting[0]
            until = self._waiting[1].time if len(self._waiting) > 1 else self.end
            if front.index == 0 or any(one.needs(front.time, until, front.key) for one in self._needs):
                if front.frame_HWC is not None:
                    yield Frame(front.index, front.time, front.key, front.frame_HWC)
                elif ended or self._passed > front.index:
                    raise SelectionMissedError
                else:
                    return
            self._waiting.popleft()


def _widen(pipe: IO[bytes]) -> None:
    """Let the pipe hold several frames where the system can (Linux)."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        # Users have a quota of pipe memory; a smaller pipe is only slower.
        with suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdout is None or process.stderr is None:
        raise RuntimeError("the ffmpeg process was started without pipes")
    return process.stdout, process.stderr
