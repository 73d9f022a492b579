"""Frames from decord, read strictly forward: its random access returns frames of other seconds on many real files.

`skip_frames` seeks whenever it crosses a key frame, so key frames are crossed with `next()` and only frames inside a
group of pictures are skipped. decord names no frame's time, so frames are paired with the packet table by counting:
usable only for files where `Probe.no_decord()` finds nothing against it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np

from preprocess.decode.decord_library import DECORDError, decord
from preprocess.decode.fast import FastFailedError, first_line, needed_frames
from preprocess.decode.grid import Needs
from preprocess.decode.media_probe import Probe
from preprocess.decode.options import DecodeOptions
from preprocess.decode.video import Frame

# decord keeps times in float32.
RELATIVE_TIME_ERROR = 2.0**-22


class DecordFrames:
    """Iterate over the frames that `needs` ask for, in order of showing. Raises FastFailedError.

    size: (width, height) of the frames as shown.
    """

    def __init__(self, probe: Probe, needs: Sequence[Needs], size: tuple[int, int], options: DecodeOptions) -> None:
        self._probe, self._needs = probe, needs
        decord.logging.set_level(decord.logging.QUIET)
        try:
            self._reader = decord.VideoReader(
                str(probe.path), width=size[0], height=size[1], num_threads=options.threads
            )
            self._check_table()
            self._keys = sorted(int(key) for key in self._reader.get_key_indices())
        except (RuntimeError, DECORDError) as error:
            raise FastFailedError(first_line(error)) from error

    def _check_table(self) -> None:
        """decord must see the packets that PyAV sees, at the same times after the stream's start."""
        times_T = self._probe.seconds(self._probe.table.pts_T) - self._probe.info.start
        if len(self._reader) != len(times_T):
            raise FastFailedError(f"decord counts {len(self._reader)} frames, the packets {len(times_T)}")
        seen_T = np.asarray(self._reader.get_frame_timestamp(range(len(times_T))))[:, 0]
        allowed_T = self._probe.tolerance + np.abs(times_T) * RELATIVE_TIME_ERROR
        if not np.all(np.abs(seen_T - times_T) <= allowed_T):
            raise FastFailedError("decord's times differ from those of the packets")

    def __iter__(self) -> Iterator[Frame]:
        indices, times = needed_frames(self._probe, self._needs)
        position = 0
        try:
            for index, time in zip(indices.tolist(), times, strict=True):
                self._forward(position, index)
                position = index + 1
                key = index == 0 or bool(self._probe.table.key_T[index])
                yield Frame(index, time, key, _three_channels(self._reader.next().asnumpy()))
        except (RuntimeError, DECORDError, StopIteration) as error:
            raise FastFailedError(f"after frame {position - 1}: {first_line(error)}") from error

    def _forward(self, position: int, index: int) -> None:
        """Make frame `index` the next one, crossing every key frame on the way with next()."""
        while position < index:
            following = bisect_right(self._keys, position)
            key = self._keys[following] if following < len(self._keys) else index + 1
            stop = min(index, key - 1)
            if stop > position:
                self._reader.skip_frames(stop - position)
                position = stop
            if position < index:
                self._reader.next()
                position += 1


def _three_channels(frame_HWC: np.ndarray) -> np.ndarray:
    """RGB of what decord returns: where lines padded for alignment are a multiple of the width, of some widths up to
    72 pixels, it takes the padding for more channels."""
    height, width, channels = frame_HWC.shape
    if channels == 3:
        return frame_HWC
    lines_HN = frame_HWC.reshape(height, width * channels)
    return np.ascontiguousarray(lines_HN[:, : width * 3]).reshape(height, width, 3)
