"""What a file is by its first bytes, before any media library sees it.

Only formats listed here are opened, each with its demuxer named, so that a playlist, a concat script or any other text
that names further files is refused unread. Sources: ISO/IEC 14496-12 (boxes), RFC 8794 (EBML), the RIFF and GIF89a
specifications, ISO/IEC 13818-1 (MPEG streams).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from preprocess.decode.structure import EBML_SEGMENT, ELEMENT_HEAD_BYTES, element_head
from preprocess.decode.video import Reason, fail

HEAD_BYTES = 4096
ISO_BOXES = {b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"moof", b"sidx"}
STILL_BRANDS = {b"avif", b"mif1", b"heic", b"heix"}

# (offset, magic, demuxer). The demuxer is libavformat's name; `image` goes to Pillow.
MAGICS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x1a\x45\xdf\xa3", "matroska"),
    (0, b"FLV\x01", "flv"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "asf"),
    (0, b"OggS", "ogg"),
    (0, b"GIF87a", "gif"),
    (0, b"GIF89a", "gif"),
    (0, b"\xff\xd8\xff", "image"),
    (0, b"\x89PNG\r\n\x1a\n", "image"),
    (0, b"II*\x00", "image"),
    (0, b"MM\x00*", "image"),
    (0, b"\x00\x00\x01\xba", "mpeg"),
    (0, b"\x00\x00\x01\xb3", "mpegvideo"),
    (0, b".RMF", "rm"),
    (0, b"DKIF", "ivf"),
    (0, b"YUV4MPEG2 ", "yuv4mpegpipe"),
    (0, b"nut/multimedia container\x00", "nut"),
    (0, b"\x06\x0e\x2b\x34\x02\x05\x01\x01\x0d\x01\x02\x01\x01\x02", "mxf"),
    (0, b"ID3", "mp3"),
    (0, b"fLaC", "flac"),
)


@dataclass(frozen=True)
class Sniffed:
    """demuxer: libavformat's name, or `image`. cut_off: why the structure says that the file was cut, else empty."""

    demuxer: str
    cut_off: str = ""


def sniff(path: Path) -> Sniffed:
    """The container of `path` (an existing file that is not empty).

    Raises DecodeFailure: not_a_media_file, or truncated where the part that describes the media is missing.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        demuxer = _demuxer(head)
        if demuxer is None:
            fail("not_a_media_file", f"{path.name} begins with {head[:16]!r}, which no known media format does")
        if demuxer == "mov":
            return Sniffed(demuxer, _iso_cut_off(file, size, path.name))
        if demuxer == "matroska":
            return Sniffed(demuxer, _ebml_cut_off(file, size))
        if demuxer == "avi":
            return Sniffed(demuxer, _riff_cut_off(head, size))
        return Sniffed(demuxer)


def _demuxer(head: bytes) -> str | None:
    if head[:4] == b"RIFF":
        return {b"AVI ": "avi", b"WEBP": "image", b"WAVE": "wav"}.get(head[8:12])
    if head[:2] == b"BM" and head[6:10] == bytes(4):
        return "image"
    if head[4:8] in ISO_BOXES:
        return "image" if head[4:8] == b"ftyp" and head[8:12] in STILL_BRANDS else "mov"
    for offset, magic, demuxer in MAGICS:
        if head[offset : offset + len(magic)] == magic:
            return demuxer
    return "mpegts" if _is_transport_stream(head) else None


def _is_transport_stream(head: bytes) -> bool:
    """Sync bytes every 188 bytes, or every 192 with a 4-byte time stamp before each (M2TS)."""
    for offset, packet in ((0, 188), (4, 192)):
        sync = head[offset::packet][:8]
        if len(sync) >= 3 and set(sync) == {0x47}:
            return True
    return False


def _iso_cut_off(file: BinaryIO, size: int, name: str) -> str:
    """Walk the top-level boxes: each says how long it is."""
    position, found = 0, set()
    while position + 8 <= size:
        file.seek(position)
        length, kind = struct.unpack(">I4s", file.read(8))
        if not kind.isascii() or not kind.replace(b" ", b"").isalnum():
            break  # bytes appended after the last box; players ignore them too
        found.add(kind)
        if length == 1:
            length = int.from_bytes(file.read(8), "big")
        if length == 0:
            position = size
        elif length < 8:
            break
        else:
            position += length
    known = position > size and kind in ISO_BOXES
    cut_off = f"box {kind.decode()!r} ends at byte {position}, the file at {size}" if known else ""
    if b"moov" not in found:
        reason: Reason = "truncated" if position >= size else "corrupt"
        fail(reason, f"{name} has no index (moov box){': ' + cut_off if cut_off else ''}; get the file again")
    return cut_off


def _ebml_cut_off(file: BinaryIO, size: int) -> str:
    """Compare the length that the segment announces with the length of the file."""
    position = 0
    for _ in range(8):
        file.seek(position)
        name, body, length = element_head(file.read(ELEMENT_HEAD_BYTES)) or (0, 0, None)
        if length is None:  # a live recording
            return ""
        end = position + body + length
        if name == EBML_SEGMENT:
            return f"the segment ends at byte {end}, the file at {size}" if end > size else ""
        position = end
    return ""


def _riff_cut_off(head: bytes, size: int) -> str:
    announced = 8 + int.from_bytes(head[4:8], "little")
    return f"the RIFF chunk ends at byte {announced}, the file at {size}" if announced > size else ""
