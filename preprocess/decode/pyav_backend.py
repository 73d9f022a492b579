"""Frames from libavcodec by way of PyAV, read strictly forward in this process, paired with the packets by their times.

What no needed frame depends on is left out before it is decoded, so that what remains is decoded to the same pixels:
frames that H.264 itself calls unreferenced (ITU-T H.264, 7.4.1: nal_ref_idc 0), and everything between the last needed
frame and the next one that begins anew. Packets are read one after the other all the same, and those left out are
looked at for damage as far as their structure shows it; nothing seeks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import av
import numpy as np
from av.codec.context import Flags
from av.error import FFmpegError
from av.filter import Graph
from numpy.typing import NDArray

from preprocess.decode.fast import FastFailedError, first_line, needed_frames
from preprocess.decode.grid import Needs
from preprocess.decode.media_probe import Probe, open_container
from preprocess.decode.nal import is_well_formed
from preprocess.decode.options import DecodeOptions
from preprocess.decode.packets import PacketTable
from preprocess.decode.video import Frame

# The turns that ffmpeg's own program puts before the scaler, by degrees clockwise.
TURNS: dict[int, list[tuple[str, str | None]]] = {
    0: [],
    90: [("transpose", "clock")],
    180: [("hflip", None), ("vflip", None)],
    270: [("transpose", "cclock")],
}
# Codecs in which libavcodec knows the frames that none refers to. In HEVC they may be referred to by higher layers.
LEAVES_OUT = {"h264"}


class PyavFrames:
    """Iterate over the frames that `needs` ask for, in order of showing. Raises FastFailedError.

    size: (width, height) of the frames as shown.
    """

    def __init__(self, probe: Probe, needs: Sequence[Needs], size: tuple[int, int], options: DecodeOptions) -> None:
        self._probe, self._options = probe, options
        self._scaler = _Scaler(size, probe.info.rotation)
        self._indices, self._times = needed_frames(probe, needs)
        self._pts = probe.table.pts_T[self._indices].tolist()

    def __iter__(self) -> Iterator[Frame]:
        done = 0
        try:
            for frame in self._decoded():
                if done == len(self._pts) or frame.pts is None or frame.pts < self._pts[done]:
                    continue
                if frame.pts > self._pts[done] or frame.is_corrupt:
                    break
                index = int(self._indices[done])
                key = index == 0 or bool(self._probe.table.key_T[index])
                yield Frame(index, self._times[done], key, self._scaler.scaled(frame))
                done += 1
        except FFmpegError as error:
            raise FastFailedError(f"PyAV stops before frame {self._at(done)}: {first_line(error)}") from error
        if done < len(self._pts):
            raise FastFailedError(f"PyAV does not deliver frame {self._at(done)}")

    def _at(self, done: int) -> int:
        return int(self._indices[min(done, len(self._indices) - 1)])

    def _decoded(self) -> Iterator[av.VideoFrame]:
        """All frames that are decoded; those that can be left out are not."""
        probe, wanted = self._probe, set(self._pts)
        with open_container(probe.path, probe.demuxer) as container:
            stream = container.streams[probe.info.stream]
            assert isinstance(stream, av.VideoStream), "the probe chose a video stream"
            codec = stream.codec_context
            codec.thread_count = self._options.threads
            codec.thread_type = "SLICE" if self._options.threads == 1 else "AUTO"
            codec.flags |= Flags.unaligned  # crop to the pixel, as ffmpeg's program does
            # What is damaged must fail, not be made up: ffmpeg's own program then decides what is to be had.
            codec.options = {"err_detect": "explode", "max_pixels": str(self._options.max_pixels)}
            name, configuration = codec.codec.canonical_name, codec.extradata or b""
            skipped = needless_packets(probe.table, self._indices)
            place = -1
            for packet in container.demux(stream):
                place += packet.size > 0
                if packet.size and skipped[place]:
                    if not is_well_formed(name, configuration, memoryview(packet)):
                        raise FastFailedError(f"packet {place} is damaged")
                    continue
                if name in LEAVES_OUT:
                    codec.skip_frame = "DEFAULT" if packet.pts is None or packet.pts in wanted else "NONREF"
                yield from codec.decode(packet)


def needless_packets(table: PacketTable, needed: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which packets, by their place in the file, no needed frame depends on: bool (table.packets,).

    needed: int64 numbers of frames in order of showing, the first one among them. A stretch of the file begins with a
    frame that begins anew, where all that is shown before it is also stored before it. Within a stretch a frame depends
    only on what is stored before it.
    """
    places = np.arange(len(table.pts_T))
    # Hidden packets have places too, which the table does not tell.
    if table.hidden or not table.anew_T.any():
        return np.zeros(table.packets, np.bool_)
    stored_before = np.maximum.accumulate(table.place_T)
    alone = np.concatenate([[True], stored_before[:-1] == places[:-1]])
    begins = np.union1d([0], np.flatnonzero(table.anew_T & alone))
    last_needed = np.full(len(begins), -1)
    np.maximum.at(last_needed, np.searchsorted(begins, needed, side="right") - 1, table.place_T[needed])
    skipped: NDArray[np.bool_] = places > last_needed[np.searchsorted(begins, places, side="right") - 1]
    return skipped


class _Scaler:
    """libavfilter's scaler as ffmpeg's program uses it, so that both give the same pixels; made anew where the
    picture's size or format changes."""

    def __init__(self, size: tuple[int, int], rotation: int) -> None:
        self._size, self._turns = size, TURNS[rotation]
        self._graph: Graph | None = None
        self._made_for: tuple[int, int, str] | None = None

    def scaled(self, frame: av.VideoFrame) -> NDArray[np.uint8]:
        """(H, W, 3) uint8 RGB."""
        asked = (frame.width, frame.height, frame.format.name)
        if self._graph is None or self._made_for != asked:
            self._graph, self._made_for = self._make(frame), asked
        self._graph.vpush(frame)
        width, height = self._size
        # Not copied: the array keeps the plane, and the plane its frame.
        plane = self._graph.vpull().planes[0]
        lines_HN: NDArray[np.uint8] = np.frombuffer(memoryview(plane), np.uint8).reshape(height, plane.line_size)
        return lines_HN[:, : width * 3].reshape(height, width, 3)

    def _make(self, frame: av.VideoFrame) -> Graph:
        graph = Graph()
        graph.threads = 1
        first = graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=frame.time_base)
        turns = [graph.add(name, arguments) for name, arguments in self._turns]
        scale, rgb = graph.add("scale", "{}:{}".format(*self._size)), graph.add("format", "rgb24")
        graph.link_nodes(first, *turns, scale, rgb, graph.add("buffersink")).configure()
        return graph
