"""What begins anew, by the type of the first picture unit in a packet."""

from __future__ import annotations

import pytest

from preprocess.decode.nal import begins_anew, is_well_formed

AVC = bytes([1, 100, 0, 31, 0xFF])  # lengths of 4 bytes
HEVC = bytes([1, *[0] * 20, 0xFD])  # lengths of 2 bytes


def units(length: int, *firsts: int) -> bytes:
    return b"".join((3).to_bytes(length, "big") + bytes([first, 0, 0]) for first in firsts)


@pytest.mark.parametrize(
    ("codec", "configuration", "packet", "expected"),
    [
        ("h264", AVC, units(4, 0x09, 0x67, 0x65), True),  # delimiter, parameters, IDR
        ("h264", AVC, units(4, 0x06, 0x61), False),  # recovery point, then a picture that is no IDR
        ("h264", AVC, units(4, 0x67), False),  # no picture at all
        ("h264", AVC, b"\0\0", False),
        ("h264", b"", units(4, 0x65), False),
        ("h264", b"\0\0\0\1\x67", units(4, 0x65), False),  # start codes instead of lengths
        ("hevc", HEVC, units(2, 0x40, 0x26), True),  # parameters, IDR
        ("hevc", HEVC, units(2, 0x2A), True),  # CRA
        ("hevc", HEVC, units(2, 0x02), False),  # trailing picture
        ("hevc", HEVC[:21], units(2, 0x26), False),
        ("vp9", AVC, units(4, 0x65), False),
    ],
)
def test_begins_anew(codec: str, configuration: bytes, packet: bytes, expected: bool) -> None:
    assert begins_anew(codec, configuration, packet) is expected


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        (units(4, 0x41), True),
        (units(4, 0x06, 0x41), True),
        (units(4, 0x06, 0x41)[:-1], False),
        (units(4, 0x06, 0x41) + b"\0", False),
        (b"\0\0\0\0" + units(4, 0x41), False),
        (units(4, 0x06, 0xC1), False),
        (bytes(byte ^ 0xFF for byte in units(4, 0x41)), False),
    ],
)
def test_is_well_formed(packet: bytes, expected: bool) -> None:
    assert is_well_formed("h264", AVC, packet) is expected
