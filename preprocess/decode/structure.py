"""Whether a container is broken inside, told by its own structure: the parts of a whole file follow each other exactly.

Demuxers skip what is broken, search for the next thing that looks like a beginning and say nothing: seconds of video
are then missing, or later frames stand at earlier times. Sources: RFC 8794 (EBML) and RFC 9559 (Matroska), the GIF89a
specification. AVI is checked by its index (`media_probe.py`), MP4 too; Ogg has checksums, which ffmpeg reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

EBML_HEADER, EBML_SEGMENT, EBML_CLUSTER = 0x1A45DFA3, 0x18538067, 0x1F43B675
# What stands in a segment beside clusters: a cluster of unknown length ends where one of them begins.
TOP_LEVEL = {
    0x114D9B74,  # SeekHead
    0x1549A966,  # Info
    0x1654AE6B,  # Tracks
    0x1C53BB6B,  # Cues
    0x1941A469,  # Attachments
    0x1043A770,  # Chapters
    0x1254C367,  # Tags
    EBML_CLUSTER,
}
ELEMENT_HEAD_BYTES = 12  # 4 of an ID and 8 of a length


def damage_of(path: Path, demuxer: str) -> str:
    """Where the structure breaks, one clause for a message; empty where it does not, or where it is not known here."""
    walk = WALKS.get(demuxer)
    if walk is None:
        return ""
    # Not buffered: what is read are a few bytes here and there.
    with path.open("rb", buffering=0) as file:
        broken = walk(file, path.stat().st_size)
    return "" if broken is None else f"its structure breaks at byte {broken}"


def _matroska(file: BinaryIO, size: int) -> int | None:
    """The place of the first element that cannot be one, or that leaves the one it is in."""
    position, inside = 0, [_Element(0, size, False)]  # what the walk is in
    while position < size:
        while len(inside) > 1 and position >= inside[-1].end:
            if inside.pop().name == EBML_SEGMENT:
                return None  # what somebody appended to a whole file is nobody's business
        file.seek(position)
        found = element_head(file.read(ELEMENT_HEAD_BYTES))
        if found is None:
            padding = not any(element.known for element in inside) and _only_zeros(file, position)
            return None if padding else position
        name, body, length = found
        if name in TOP_LEVEL and inside[-1].name == EBML_CLUSTER and not inside[-1].known:
            inside.pop()  # a cluster of unknown length ends where the next thing beside it begins
        begins = position + body
        if length is None and name not in (EBML_SEGMENT, EBML_CLUSTER):
            return position
        end = inside[-1].end if length is None else begins + length
        if end > inside[-1].end:
            return position
        if name in (EBML_SEGMENT, EBML_CLUSTER):
            inside.append(_Element(name, end, length is not None))
            position = begins
        else:
            position = end
    return None


@dataclass(frozen=True)
class _Element:
    """known: whether it says where it ends."""

    name: int
    end: int
    known: bool


def _only_zeros(file: BinaryIO, position: int) -> bool:
    """Whether the rest of a file is padding, of a file that does not say how long it is."""
    file.seek(position)
    while data := file.read(1 << 20):
        if any(data):
            return False
    return True


def element_head(head: bytes) -> tuple[int, int, int | None] | None:
    """(ID with its marker, bytes of ID and length, the length, None if unknown) of an EBML element, None for no such.

    head: its first bytes, `ELEMENT_HEAD_BYTES` of them where there are as many.
    """
    of_id = vint_length(head[:1])
    of_length = vint_length(head[of_id : of_id + 1])
    if not 0 < of_id <= 4 or not of_length or of_id + of_length > len(head):
        return None
    name, value = head[:of_id], int.from_bytes(head[of_id : of_id + of_length], "big")
    unknown = (1 << 7 * of_length) - 1
    length = value & unknown
    return int.from_bytes(name, "big"), of_id + of_length, None if length == unknown else length


def vint_length(first: bytes) -> int:
    """Bytes of an EBML variable-length integer, 0 where there is none."""
    return 9 - first[0].bit_length() if first and first[0] else 0


def _gif(file: BinaryIO, size: int) -> int | None:
    """The place of the first block that is none. A file may lack its trailer, but not end within a block."""
    head = file.read(13)
    position = 13 + _colours(head[10:11])
    while position < size:
        file.seek(position)
        kind = file.read(1)
        if kind == b";":
            return None
        if kind == b"!":
            following = _after_data(file, position + 2, size)
        elif kind == b",":
            colours = _colours(file.read(9)[8:9])
            following = _after_data(file, position + 10 + colours + 1, size)
        else:
            return None if _only_zeros(file, position) else position
        if following is None:
            return position
        position = following
    return None if position == size else size


def _colours(flags: bytes) -> int:
    """Bytes of the colour table that a descriptor's flags announce."""
    return 3 << (flags[0] & 7) + 1 if flags and flags[0] & 0x80 else 0


def _after_data(file: BinaryIO, position: int, size: int) -> int | None:
    """The place after data in blocks of up to 255 bytes, which end with an empty one; None where the file ends."""
    while position < size:
        file.seek(position)
        length = file.read(1)[0]
        position += 1 + length
        if not length:
            return position
    return None


WALKS: dict[str, Callable[[BinaryIO, int], int | None]] = {"matroska": _matroska, "gif": _gif}
