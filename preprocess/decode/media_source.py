"""The frames of a media file: which backend is tried first, and which one takes over where it fails."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

from preprocess.decode.decord_backend import DecordFrames
from preprocess.decode.fast import FastFailedError
from preprocess.decode.ffmpeg_backend import FfmpegFrames, SelectionMissedError
from preprocess.decode.ffmpeg_check import complaint
from preprocess.decode.grid import Grid, KeyGrid, NoFrames
from preprocess.decode.media_probe import Probe
from preprocess.decode.options import DecodeOptions
from preprocess.decode.pyav_backend import PyavFrames
from preprocess.decode.video import Frame, Reason, fail

FAST: dict[str, type[DecordFrames] | type[PyavFrames]] = {"decord": DecordFrames, "pyav": PyavFrames}
# Codecs that PyAV reads faster than decord (benchmarks/decode.py), or whose damage decord hides, and the strategies for
# which decord is the faster one with the others.
PYAV_FIRST = frozenset({"h264", "hevc", "mpeg4"})
DECORD_FIRST = frozenset({"fps", "uniform"})


def first_and_end(probe: Probe, strategies: Sequence[str], options: DecodeOptions) -> tuple[float, float]:
    """Seconds at which the first frame is shown and the last one ends.

    From the packets where they can be trusted. Else an estimate, unless `uniform`, which divides the span, asks for the
    truth: then the video is decoded once for its times alone.
    """
    if probe.table.trusted:
        return float(probe.seconds(probe.table.pts_T)[0]), probe.info.duration
    if "uniform" not in strategies:
        return probe.info.start, probe.info.duration
    with FfmpegFrames(probe, [NoFrames()], (16, 16), options) as scan:
        times = [frame.time for frame in scan]
        return (times[0], scan.end) if times else (probe.info.start, probe.info.duration)


class MediaSource:
    """Frames of one file for some grids, from a fast backend or ffmpeg; `info` is final once they have ended.

    decord or PyAV reads where the packets can be trusted, whichever is the faster one (or asked for); wherever it
    fails, ffmpeg decodes again from the start and what has been delivered is left out.
    """

    def __init__(
        self,
        probe: Probe,
        grids: Sequence[Grid | KeyGrid],
        strategies: Sequence[str],
        size: tuple[int, int],
        options: DecodeOptions,
    ) -> None:
        if (probe.cut_off or probe.broken) and not options.keep_partial:
            reason: Reason = "truncated" if probe.cut_off else "corrupt"
            what = probe.cut_off or probe.broken
            fail(reason, f"{probe.path.name}: {what}; get the file again, or set decode.keep_partial=true")
        self._probe, self._grids, self._size, self._options = probe, list(grids), size, options
        self._delivered = -1
        self._fast, why = self._choose(strategies)
        self.info = replace(probe.info, backend=self._fast or "ffmpeg", why=why)

    def frames(self) -> Generator[Frame]:
        """Raises DecodeFailure at the end where the file is damaged and partial frames are not to be kept."""
        if self._fast is not None:
            try:
                yield from self._from_fast(self._fast)
            except FastFailedError as error:
                tried = f"{self._fast}+ffmpeg" if self._delivered >= 0 else "ffmpeg"
                self.info = replace(self.info, backend=tried, why=str(error))
            else:
                return
        try:
            yield from self._from_ffmpeg(choose=True, key_only=self._only_keys())
        except SelectionMissedError:
            yield from self._from_ffmpeg(choose=False, key_only=False)

    def _choose(self, strategies: Sequence[str]) -> tuple[str | None, str]:
        """(the fast backend to begin with, why not the one that was wanted); None for ffmpeg."""
        probe, asked = self._probe, self._options.backend
        if asked == "ffmpeg" or self._only_keys():
            return None, ""
        against = {"decord": probe.no_decord(), "pyav": probe.no_pyav()}
        if probe.cut_off or probe.broken:
            against = dict.fromkeys(against, probe.cut_off or probe.broken)
        if asked == "auto":
            decord = probe.info.codec not in PYAV_FIRST and DECORD_FIRST.issuperset(strategies)
            asked = "decord" if decord and not against["decord"] else "pyav"
        return (None, against[asked]) if against[asked] else (asked, "")

    def _only_keys(self) -> bool:
        """Whether decoding key frames alone, some eight times as fast, delivers every frame that is needed."""
        table = self._probe.table
        keys = bool(self._grids) and all(isinstance(grid, KeyGrid) for grid in self._grids)
        return keys and table.trusted and bool(table.key_T[0])

    def _from_fast(self, name: str) -> Generator[Frame]:
        for frame in FAST[name](self._probe, self._grids, self._size, self._options):
            self._delivered = frame.index
            yield frame

    def _from_ffmpeg(self, choose: bool, key_only: bool) -> Generator[Frame]:
        with FfmpegFrames(self._probe, self._grids, self._size, self._options, choose, key_only) as decoder:
            for frame in decoder:
                if frame.index > self._delivered:
                    self._delivered = frame.index
                    yield frame
            self._judge(decoder)
        if not key_only:
            self.info = replace(self.info, frames=decoder.shown, duration=decoder.end)

    def _judge(self, decoder: FfmpegFrames) -> None:
        """Decide whether what was decoded is the whole video."""
        outcome, name, cut_off = decoder.outcome, self._probe.path.name, self._probe.cut_off
        known = cut_off or self._probe.broken
        if outcome.out_of_time:
            fail("timeout", f"{name}: over {self._options.timeout_s:g} CPU seconds, the limit timeout_s")
        if not decoder.shown:
            reason: Reason = "unsupported_codec" if outcome.no_decoder else "truncated" if cut_off else "corrupt"
            fail(reason, f"{name} ({self.info.codec}): {known or 'no frame decodes'}")
        damage = known
        if outcome.errors or outcome.damaged or decoder.status:
            failed = f"{outcome.errors} of {outcome.packets} packets do not decode"
            damage = damage or (failed if outcome.errors else "its packets, or what they decode to, are damaged")
        damage = damage or complaint(self._probe, self._options)
        if damage and not self._options.keep_partial:
            fail("corrupt", f"{name}: {damage}; get the file again, or set decode.keep_partial=true")
        self.info = replace(self.info, partial=bool(damage), why=damage or self.info.why)
