"""The packets of a video stream, read by PyAV without decoding them (but for the first frame).

They say when each frame is shown. Where that can be trusted, frames can be counted, paired and chosen by it; where it
cannot, only the decoder's own times hold.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from av.error import FFmpegError
from numpy.typing import NDArray

from preprocess.decode.frame_numbers import FrameNumbers
from preprocess.decode.nal import begins_anew
from preprocess.decode.options import DecodeOptions
from preprocess.decode.video import fail

# Containers that store when each frame is shown. AVI stores none, program and transport streams not for every frame.
TIMED = {"mov", "matroska", "gif", "flv", "asf", "ivf", "nut"}
# AVI stores no times: the decoder's are right relative to each other, and the first frame is shown when the stream
# starts. Its packets are taken by the times of decoding, which are the places in the file.
ANCHORED = {"avi"}
ROTATION_PACKETS = 200


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


def read_packets(
    container: av.container.InputContainer, stream: av.VideoStream, demuxer: str, options: DecodeOptions, path: Path
) -> tuple[PacketTable, bytes, tuple[int, int] | None]:
    """(table, display matrix, size of the first frame) from one pass over the packets."""
    pts, ticks, keys, anew = array("q"), array("q"), array("b"), array("b")
    codec, configuration = stream.codec.canonical_name, stream.codec_context.extradata or b""
    numbers = FrameNumbers(codec, configuration)
    untimed = damaged = hidden = packets = 0
    matrix, size = b"", None
    doubt = "" if demuxer in TIMED else f"{demuxer} does not store when frames are shown"
    try:
        for packet in container.demux(stream):
            if not packet.size:
                continue
            packets += 1
            check_limit("frames", packets, options.max_frames, "max_frames", path)
            damaged += packet.is_corrupt
            numbers.see(memoryview(packet))
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
                anew.append(packet.is_keyframe and begins_anew(codec, configuration, memoryview(packet)))
    except FFmpegError as error:
        doubt = doubt or f"reading stops after {packets} packets: {error.strerror}"
    pts_T, ticks_T = np.array(pts, dtype=np.int64), np.array(ticks, dtype=np.int64)
    key_T, anew_T = np.array(keys, dtype=np.bool_), np.array(anew, dtype=np.bool_)
    doubt = doubt or _doubt(pts_T, key_T, untimed, damaged, hidden)
    if numbers.jumps:
        doubt = doubt or f"pictures that others refer to are missing in {numbers.jumps} places"
    if stream.codec_context.has_b_frames and len(pts_T) > 1 and np.all(np.diff(pts_T) > 0):
        doubt = doubt or "frames are stored in another order than they are shown, but their times do not say so"
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


def check_limit(what: str, value: float, limit: float, name: str, path: Path) -> None:
    if value > limit:
        fail("too_large", f"{path.name} has {value:g} {what}, the limit {name} is {limit:g}")
