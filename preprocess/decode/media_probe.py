"""Facts of a media file: what it holds, how it is shown, whether it is whole, and which decoders it can be given to."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.codec.context import Flags
from av.error import FFmpegError
from av.stream import Disposition
from numpy.typing import NDArray

from preprocess.decode.grid import tolerance_of
from preprocess.decode.options import DecodeOptions
from preprocess.decode.packets import PacketTable, check_limit, read_packets
from preprocess.decode.sniff import sniff
from preprocess.decode.structure import damage_of
from preprocess.decode.video import VideoInfo, fail

DECORD_CODECS = {"h264", "hevc", "vp8", "vp9", "av1", "mpeg4"}
# Decoders that make up what is damaged and tell of it in their log only, which ffmpeg's program shows.
TELL_IN_LOG = {"gif", "mjpeg"}


@dataclass(frozen=True)
class Probe:
    """A file that can be decoded. Times are seconds; `zero` is the container's start on the stream's clock.

    cut_off: why the file is known to end too early, else empty. broken: why it is known to be damaged inside.
    flipped: mirrored, or turned by an odd angle.
    video_streams: how many there are, cover pictures included.
    """

    path: Path
    demuxer: str
    info: VideoInfo
    time_base: Fraction
    zero: float
    rate: float
    table: PacketTable
    cut_off: str
    broken: str
    flipped: bool
    video_streams: int

    @property
    def tolerance(self) -> float:
        return tolerance_of(self.time_base)

    def seconds(self, pts_T: NDArray[np.int64]) -> NDArray[np.float64]:
        """Ticks of the stream to seconds of the file's own clock."""
        # Multiplied before divided: a frame of a whole second is then at exactly that second.
        return (pts_T * self.time_base.numerator).astype(np.float64) / self.time_base.denominator - self.zero

    def no_pyav(self) -> str:
        """Why PyAV cannot be trusted with this file, else empty: it pairs frames with the packets by their times."""
        if self.table.doubt:
            return self.table.doubt
        if self.info.codec in TELL_IN_LOG:
            return f"the decoder of {self.info.codec} tells of damage in its log only"
        return "the picture is mirrored or turned by an odd angle" if self.flipped else ""

    def no_decord(self) -> str:
        """Why decord cannot be trusted with this file, else empty: it pairs frames with times by counting."""
        table, codec = self.table, self.info.codec
        if against := self.no_pyav():
            return against
        if self.demuxer not in {"mov", "matroska"} or codec not in DECORD_CODECS:
            return f"{codec} in {self.demuxer} is not among the formats that decord counts rightly"
        if table.hidden:
            return f"an edit list hides {table.hidden} frames"
        if self.video_streams > 1:
            return f"{self.video_streams} video streams, and decord chooses by its own rule"
        return ""


def checked_path(path: Path, options: DecodeOptions) -> Path:
    """The absolute path of a file that exists, is not empty and not larger than allowed. Raises DecodeFailure."""
    absolute = path.absolute()
    try:
        size = absolute.stat().st_size
        with absolute.open("rb"):
            pass
    except OSError as error:
        fail("missing_file", f"{path.name} cannot be read: {error.strerror}")
    if size == 0:
        fail("empty_file", f"{path.name} has 0 bytes")
    if size > options.max_bytes:
        fail("too_large", f"{path.name} has {size} bytes, the limit max_bytes is {options.max_bytes}")
    return absolute


def open_container(path: Path, demuxer: str) -> av.container.InputContainer:
    """A media file opened so that nothing but itself is read. `path` is absolute: it cannot be mistaken for a protocol,
    nor the demuxer, which `sniff` has named, for a playlist's. Raises FFmpegError."""
    # Titles and the like are not always UTF-8.
    return av.open(str(path), format=demuxer, options={"protocol_whitelist": "file"}, metadata_errors="replace")


def probe_media(path: Path, options: DecodeOptions) -> Probe:
    """Facts of a file that is not a still image. `path` is absolute. Raises DecodeFailure."""
    sniffed = sniff(path)
    try:
        with open_container(path, sniffed.demuxer) as container:
            return _probe(path, sniffed.demuxer, sniffed.cut_off, container, options)
    except FFmpegError as error:
        if sniffed.cut_off:
            fail("truncated", f"{path.name}: {sniffed.cut_off}; get the file again")
        fail("corrupt", f"{path.name} begins like {sniffed.demuxer} but cannot be opened: {error.strerror}")


def _probe(
    path: Path, demuxer: str, cut_off: str, container: av.container.InputContainer, options: DecodeOptions
) -> Probe:
    stream = _choose(container, path)
    codec = stream.codec_context
    check_limit("pixels a frame", codec.width * codec.height, options.max_pixels, "max_pixels", path)
    check_limit("seconds", _announced(container, demuxer), options.max_seconds, "max_seconds", path)
    codec.thread_count = 1
    codec.flags |= Flags.unaligned  # sizes cropped to the pixel, as ffmpeg's program shows them
    time_base = Fraction(stream.time_base or Fraction(1, 1_000_000))
    table, matrix, size = read_packets(container, stream, demuxer, options, path)
    rotation, flipped = _rotation(matrix)
    width, height = size or (codec.width, codec.height)
    if not width or not height:
        fail("corrupt", f"{path.name}: no frame of stream {stream.index} ({codec.name}) decodes, its size is unknown")
    if rotation in (90, 270):
        width, height = height, width
    zero = (container.start_time or 0) / 1e6
    begins = float(stream.start_time * time_base) - zero if stream.start_time is not None else 0.0
    rate = float(stream.average_rate or stream.base_rate or 25)
    if not cut_off and demuxer == "mov":
        cut_off = _frames_beyond(stream, path)
    lost = _frames_lost(stream, table) if demuxer == "avi" else ""
    broken = lost or damage_of(path, demuxer)
    last = float(table.pts_T[-1] * time_base) - zero if len(table.pts_T) else 0.0
    end = last + (float(table.last_ticks * time_base) or 1 / rate)
    known = table.trusted
    info = VideoInfo(
        width=width,
        height=height,
        duration=max(end, 0.0) if known else max(_announced(container, demuxer), end),
        frames=len(table.pts_T) if known else None,
        codec=stream.codec.canonical_name,
        container=demuxer,
        backend="",
        start=begins,
        stream=stream.index,
        rotation=rotation,
    )
    check_limit("seconds", info.duration, options.max_seconds, "max_seconds", path)
    streams = len(container.streams.video)
    return Probe(path, demuxer, info, time_base, zero, rate, table, cut_off, broken, flipped, streams)


def _choose(container: av.container.InputContainer, path: Path) -> av.VideoStream:
    """The first video stream that is not a cover picture."""
    covers = Disposition.attached_pic | Disposition.timed_thumbnails
    stream = next((one for one in container.streams.video if not one.disposition & covers), None)
    if stream is None:
        kinds = ", ".join(one.type for one in container.streams) or "nothing"
        fail("no_video_stream", f"{path.name} holds {kinds} and no video stream")
    if stream.codec_context is None:
        fail("unsupported_codec", f"{path.name}: no decoder for stream {stream.index}")
    return stream


def _rotation(matrix: bytes) -> tuple[int, bool]:
    """(degrees clockwise, whether it is mirrored or an odd angle) of a display matrix (ISO/IEC 14496-12, 6.2.2)."""
    if len(matrix) < 36:
        return 0, False
    a, b, _, c, d, *_ = struct.unpack("<9i", matrix[:36])
    one = 1 << 16
    turns = {(one, 0, 0, one): 0, (0, one, -one, 0): 90, (-one, 0, 0, -one): 180, (0, -one, one, 0): 270}
    if (a, b, c, d) in turns:
        return turns[a, b, c, d], False
    # ffmpeg turns mirrored pictures by the nearest right angle too.
    return (90 if abs(b) > abs(a) else 0), True


def _frames_beyond(stream: av.VideoStream, path: Path) -> str:
    """The index of an mp4 says where each frame lies: some behind the end of the file mean that the media was cut.

    Their number tells nothing: edit lists leave frames out.
    """
    end = path.stat().st_size
    frames = [entry.pos + entry.size for entry in stream.index_entries]
    beyond = sum(place > end for place in frames)
    return f"{beyond} of the {len(frames)} frames that the index lists lie behind the end of the file" if beyond else ""


def _frames_lost(stream: av.VideoStream, table: PacketTable) -> str:
    """AVI is read without its index and its frames are counted: where some vanish, all that follow come too early."""
    listed = sum(entry.size > 0 for entry in stream.index_entries)
    return f"the index lists {listed} frames, {table.packets} are found" if table.packets < listed else ""


def _announced(container: av.container.InputContainer, demuxer: str) -> float:
    """Seconds that the file says it lasts, 0 where it does not. In Matroska that is the end on its clock."""
    start = max(container.start_time or 0, 0) if demuxer == "matroska" else 0
    return max((container.duration or 0) - start, 0) / 1e6
