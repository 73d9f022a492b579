"""Facts of a file from its packets: PyAV demultiplexes, and decodes one frame to learn how the picture is turned.

The table of packets says when each frame is shown, before any of them is decoded. Where it can be trusted, frames can
be counted, paired and chosen by it; where it cannot, only the decoder's own times hold.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.codec.context import Flags
from av.error import FFmpegError
from av.stream import Disposition
from numpy.typing import NDArray

from preprocess.decode.grid import tolerance_of
from preprocess.decode.nal import begins_anew
from preprocess.decode.options import DecodeOptions
from preprocess.decode.sniff import sniff
from preprocess.decode.video import VideoInfo, fail

# Containers that store when each frame is shown. AVI stores none, program and transport streams not for every frame.
TIMED = {"mov", "matroska", "gif", "flv", "asf", "ivf", "nut"}
# AVI stores no times: the decoder's are right relative to each other, and the first frame is shown when the stream
# starts. Its packets are taken by the times of decoding, which are the places in the file.
ANCHORED = {"avi"}
DECORD_CODECS = {"h264", "hevc", "vp8", "vp9", "av1", "mpeg4"}
ROTATION_PACKETS = 200
EARLY = 1.0  # seconds by which a file may end before it says


@dataclass(frozen=True)
class PacketTable:
    """The packets of the chosen stream.

    pts_T: int64 ticks of `time_base`, of the shown frames in order of showing. key_T: bool, whether each is a key
    frame. place_T: int64, its place among them in the file, from 0. anew_T: bool, whether what follows it in the file
    is known to refer to nothing before it. last_ticks: duration of the last shown frame. packets: all of them; hidden:
    those that edit lists hide.
    trusted: whether the decoder will show exactly these frames at these times; doubt: why not, else empty.
    """

    pts_T: NDArray[np.int64]
    key_T: NDArray[np.bool_]
    place_T: NDArray[np.int64]
    anew_T: NDArray[np.bool_]
    last_ticks: int
    packets: int
    hidden: int
    doubt: str

    @property
    def trusted(self) -> bool:
        return not self.doubt


@dataclass(frozen=True)
class Probe:
    """A file that can be decoded. Times are seconds; `zero` is the container's start on the stream's clock.

    cut_off: why the file is known to end too early, else empty. flipped: mirrored, or turned by an odd angle.
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
    _limit("pixels a frame", codec.width * codec.height, options.max_pixels, "max_pixels", path)
    _limit("seconds", _announced(container, demuxer), options.max_seconds, "max_seconds", path)
    codec.thread_count = 1
    codec.flags |= Flags.unaligned  # sizes cropped to the pixel, as ffmpeg's program shows them
    time_base = Fraction(stream.time_base or Fraction(1, 1_000_000))
    table, matrix, size = _read_packets(container, stream, demuxer, options, path)
    rotation, flipped = _rotation(matrix)
    width, height = size or (codec.width, codec.height)
    if not width or not height:
        fail("corrupt", f"{path.name}: no frame of stream {stream.index} ({codec.name}) decodes, its size is unknown")
    if rotation in (90, 270):
        width, height = height, width
    zero = (container.start_time or 0) / 1e6
    begins = float(stream.start_time * time_base) - zero if stream.start_time is not None else 0.0
    rate = float(stream.average_rate or stream.base_rate or 25)
    if not cut_off:
        cut_off = _missing_frames(stream, demuxer, path)
    last = float(table.pts_T[-1] * time_base) - zero if len(table.pts_T) else 0.0
    end = last + (float(table.last_ticks * time_base) or 1 / rate)
    if table.trusted and demuxer == "matroska" and _ends_early(container, _announced(container, demuxer), end):
        table = replace(table, doubt=f"its packets end after {end:g} s, before the file says it ends")
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
    _limit("seconds", info.duration, options.max_seconds, "max_seconds", path)
    streams = len(container.streams.video)
    return Probe(path, demuxer, info, time_base, zero, rate, table, cut_off, flipped, streams)


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


def _read_packets(
    container: av.container.InputContainer, stream: av.VideoStream, demuxer: str, options: DecodeOptions, path: Path
) -> tuple[PacketTable, bytes, tuple[int, int] | None]:
    """(table, display matrix, size of the first frame) from one pass over the packets."""
    pts, ticks, keys, anew = array("q"), array("q"), array("b"), array("b")
    codec, configuration = stream.codec.canonical_name, stream.codec_context.extradata or b""
    untimed = damaged = hidden = packets = 0
    matrix, size = b"", None
    doubt = "" if demuxer in TIMED else f"{demuxer} does not store when frames are shown"
    try:
        for packet in container.demux(stream):
            if not packet.size:
                continue
            packets += 1
            _limit("frames", packets, options.max_frames, "max_frames", path)
            damaged += packet.is_corrupt
            if size is None and packets <= ROTATION_PACKETS:
                matrix, size = _first_frame(stream, packet)
            if _shows_nothing(codec, packet):
                doubt = doubt or "frames that are never shown are packets of their own"
            if packet.is_discard:
                hidden += 1
            elif (time := packet.dts if demuxer in ANCHORED else packet.pts) is None:
                untimed += 1
            else:
                pts.append(time)
                ticks.append(packet.duration or 0)
                keys.append(packet.is_keyframe)
                anew.append(packet.is_keyframe and begins_anew(codec, configuration, bytes(packet)))
    except FFmpegError as error:
        doubt = doubt or f"reading stops after {packets} packets: {error.strerror}"
    pts_T, ticks_T = np.array(pts, dtype=np.int64), np.array(ticks, dtype=np.int64)
    key_T, anew_T = np.array(keys, dtype=np.bool_), np.array(anew, dtype=np.bool_)
    doubt = doubt or _doubt(pts_T, key_T, untimed, damaged, hidden)
    order = np.argsort(pts_T, kind="stable")
    last = int(ticks_T[order[-1]]) if len(order) else 0
    table = PacketTable(pts_T[order], key_T[order], order, anew_T[order], last, packets, hidden, doubt)
    return table, matrix, size


def _doubt(pts_T: NDArray[np.int64], key_T: NDArray[np.bool_], untimed: int, damaged: int, hidden: int) -> str:
    """Why frames may not come out as the packets (in order of storage) say, else empty."""
    if not len(pts_T):
        return "no packet has a time"
    if untimed:
        return f"{untimed} packets have no time"
    if damaged:
        return f"{damaged} packets are marked as damaged"
    if len(np.unique(pts_T)) != len(pts_T):
        return "several packets have the same time"
    if not hidden and not (key_T[0] and pts_T[0] == pts_T.min()):
        return "the stream does not begin with a key frame, so its first frames may not decode"
    return ""


def _shows_nothing(codec: str, packet: av.Packet) -> bool:
    """VP8 keeps references that are never shown in packets of their own (RFC 6386, 9.1: bit 4 is show_frame)."""
    return codec == "vp8" and not bytes(packet)[0] & 0x10


def _first_frame(stream: av.VideoStream, packet: av.Packet) -> tuple[bytes, tuple[int, int] | None]:
    """(display matrix, size) of the first frame, once the decoder has enough packets to show one."""
    try:
        for frame in stream.codec_context.decode(packet):
            side = frame.side_data.get("DISPLAYMATRIX")
            return (bytes(side) if side is not None else b""), (frame.width, frame.height)
    except FFmpegError:
        # What is damaged is found, and named, when the frames themselves are decoded.
        return b"", None
    return b"", None


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


def _missing_frames(stream: av.VideoStream, demuxer: str, path: Path) -> str:
    """The index of an mp4 says where each frame lies: some behind the end of the file mean that the media was cut.

    Their number tells nothing: edit lists leave frames out.
    """
    if demuxer != "mov":
        return ""
    end = path.stat().st_size
    frames = [entry.pos + entry.size for entry in stream.index_entries]
    beyond = sum(place > end for place in frames)
    return f"{beyond} of the {len(frames)} frames that the index lists lie behind the end of the file" if beyond else ""


def _announced(container: av.container.InputContainer, demuxer: str) -> float:
    """Seconds that the file says it lasts, 0 where it does not. In Matroska that is the end on its clock."""
    start = max(container.start_time or 0, 0) if demuxer == "matroska" else 0
    return max((container.duration or 0) - start, 0) / 1e6


def _ends_early(container: av.container.InputContainer, announced: float, end: float) -> bool:
    """Whether no stream reaches the end that the file announces: libavformat skips damage and may then find no more.

    announced, end: seconds that the file says it lasts, and at which the chosen stream ends.
    """
    if end >= announced - EARLY:
        return False
    container.seek(0)
    zero = (container.start_time or 0) / 1e6
    ends = (
        float((packet.pts + (packet.duration or 0)) * packet.time_base) - zero
        for packet in container.demux()
        if packet.pts is not None
    )
    return not any(reached >= announced - EARLY for reached in ends)


def _limit(what: str, value: float, limit: float, name: str, path: Path) -> None:
    if value > limit:
        fail("too_large", f"{path.name} has {value:g} {what}, the limit {name} is {limit:g}")
