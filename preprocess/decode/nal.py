"""Whether a packet of H.264 or HEVC begins anew: what follows it in the file refers to nothing before it.

ITU-T H.264, table 7-1 (type 5: IDR) and ITU-T H.265, table 7-1 (types 16 to 21: IRAP; trailing pictures never refer
to what precedes one). Packets as MP4, Matroska and FLV store them: each unit behind its length (ISO/IEC 14496-15,
5.3.3.1 and 8.3.3.1). Key frame flags of containers are not enough: some mark pictures after which old ones are still
referred to.
"""

from __future__ import annotations

from collections.abc import Callable


def _h264(first_byte: int) -> bool | None:
    kind = first_byte & 0x1F
    return kind == 5 if 1 <= kind <= 5 else None


def _hevc(first_byte: int) -> bool | None:
    kind = first_byte >> 1 & 0x3F
    return 16 <= kind <= 21 if kind < 32 else None


# By codec: where the configuration record says how long lengths are, and what the first byte of a unit tells
# (None: not a picture).
_CODECS: dict[str, tuple[int, Callable[[int], bool | None]]] = {"h264": (4, _h264), "hevc": (21, _hevc)}


def begins_anew(codec: str, configuration: bytes, packet: memoryview | bytes) -> bool:
    """configuration: the stream's extradata. False wherever it cannot be told."""
    length = length_bytes(codec, configuration)
    found = units(length, packet) if length else None
    if not found:
        return False
    judge = _CODECS[codec][1]
    return next((answer for start, _ in found if (answer := judge(packet[start])) is not None), False)


def is_well_formed(codec: str, configuration: bytes, packet: memoryview | bytes) -> bool:
    """Whether the units of a packet fill it exactly and each begins with the bit 0, as both standards demand.

    A cheap look at what is not decoded: most damage hits a length. Only for streams where `begins_anew` told something.
    """
    found = units(length_bytes(codec, configuration), packet)
    return found is not None and not any(packet[start] & 0x80 for start, _ in found)


def length_bytes(codec: str, configuration: bytes) -> int:
    """How many bytes the length before each unit has; 0 where units are stored in another way."""
    at = _CODECS[codec][0] if codec in _CODECS else len(configuration)
    return (configuration[at] & 3) + 1 if len(configuration) > at and configuration[0] == 1 else 0


def units(length: int, packet: memoryview | bytes) -> list[tuple[int, int]] | None:
    """(first byte, bytes) of every unit, None where the lengths do not add up to the packet."""
    found = []
    position = 0
    while position + length < len(packet):
        size = int.from_bytes(packet[position : position + length], "big")
        if size == 0:
            return None
        found.append((position + length, size))
        position += length + size
    return found if position == len(packet) else None
