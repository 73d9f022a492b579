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


def begins_anew(codec: str, configuration: bytes, packet: bytes) -> bool:
    """configuration: the stream's extradata. False wherever it cannot be told."""
    if codec not in _CODECS:
        return False
    at, judge = _CODECS[codec]
    if len(configuration) <= at or configuration[0] != 1:
        return False
    length = (configuration[at] & 3) + 1
    position = 0
    while position + length < len(packet):
        answer = judge(packet[position + length])
        if answer is not None:
            return answer
        position += length + int.from_bytes(packet[position : position + length], "big")
    return False
