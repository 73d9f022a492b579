"""Whether an H.264 stream lacks pictures that others refer to, told by its own numbering and without decoding it.

Every reference picture counts `frame_num` up by one (ITU-T H.264, 7.4.3); a jump that the sequence does not allow means
that pictures were lost, or that damage made one look as if nothing referred to it. Decoders then make something up,
each in its own way, and say nothing. Syntax: 7.3.2.1.1 (sequence), 7.3.2.2 (picture), 7.3.3 (slice). A memory
operation that starts the count anew (8.2.1, operation 5) is rare and taken for a jump.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from preprocess.decode.nal import length_bytes, units

# Types of units (7.4.1, table 7-1).
_IDR, _SEQUENCE = 5, 7
_PICTURES, _PARAMETERS = {1, _IDR}, {_SEQUENCE, 8}
_HEADER_BYTES = 24  # of a slice header, more than frame_num and all before it need
_WITH_CHROMA = {100, 110, 122, 244, 44, 83, 86, 118, 128, 134, 135, 138, 139}


@dataclass(frozen=True)
class _Sequence:
    """What a slice header needs of its sequence. planes: whether colour planes are coded apart."""

    bits: int
    planes: bool
    gaps_allowed: bool


class FrameNumbers:
    """Follows the pictures of a stream in the order of storage. `jumps` counts those before which some are missing.

    configuration: the stream's extradata. A stream that is not stored behind lengths (MP4, Matroska) is not followed.
    """

    def __init__(self, codec: str, configuration: bytes) -> None:
        self.jumps = 0
        self._length = length_bytes(codec, configuration) if codec == "h264" else 0
        self._sequences: dict[int, _Sequence] = {}
        self._sequence_of: dict[int, int] = {}  # picture parameter set -> sequence parameter set
        self._reference: int | None = None  # frame_num of the last picture that others may refer to
        if self._length:
            for unit in _configured(configuration):
                self._keep(unit)

    def see(self, packet: memoryview) -> None:
        """The next packet of the stream. What cannot be read is left for the decoder to judge."""
        if not self._length:
            return
        for start, size in units(self._length, packet) or ():
            kind = packet[start] & 0x1F
            if kind in _PARAMETERS:
                self._keep(bytes(packet[start : start + size]))
            elif kind in _PICTURES:
                with suppress(_EndedError, KeyError):
                    self._picture(bytes(packet[start : start + min(size, _HEADER_BYTES)]))
                return  # the other slices of the picture say the same

    def _keep(self, unit: bytes) -> None:
        """Remember a parameter set."""
        bits = _Bits(unit[1:])
        with suppress(_EndedError):
            if unit[0] & 0x1F == _SEQUENCE:
                number, sequence = _sequence(bits)
                self._sequences[number] = sequence
            else:
                number = bits.unsigned()
                self._sequence_of[number] = bits.unsigned()

    def _picture(self, unit: bytes) -> None:
        bits = _Bits(unit[1:])
        bits.unsigned()  # first_mb_in_slice
        bits.unsigned()  # slice_type
        sequence = self._sequences[self._sequence_of[bits.unsigned()]]
        if sequence.planes:
            bits.read(2)
        number, before = bits.read(sequence.bits), self._reference
        jump = before is not None and number not in (before, (before + 1) % (1 << sequence.bits))
        if jump and unit[0] & 0x1F != _IDR and not sequence.gaps_allowed:
            self.jumps += 1
        if jump or before is None or unit[0] & 0x60:
            # What is lost has been counted up to here (8.2.5.2).
            self._reference = number


def _configured(configuration: bytes) -> Iterator[bytes]:
    """The parameter sets in an AVC configuration record (ISO/IEC 14496-15, 5.3.3.1)."""
    position = 5
    for mask in (0x1F, 0xFF):  # how many sequence, then how many picture parameter sets
        if position >= len(configuration):
            return
        count = configuration[position] & mask
        position += 1
        for _ in range(count):
            size = int.from_bytes(configuration[position : position + 2], "big")
            if unit := configuration[position + 2 : position + 2 + size]:
                yield unit
            position += 2 + size


def _sequence(bits: _Bits) -> tuple[int, _Sequence]:
    """(number, what is needed) of a sequence parameter set."""
    profile = bits.read(8)
    bits.read(16)
    number, planes = bits.unsigned(), False
    if profile in _WITH_CHROMA:
        chroma = bits.unsigned()
        planes = chroma == 3 and bool(bits.read(1))
        bits.unsigned()
        bits.unsigned()
        bits.read(1)
        if bits.read(1):
            _skip_scaling_lists(bits, 12 if chroma == 3 else 8)
    number_bits = bits.unsigned() + 4
    order = bits.unsigned()
    if order == 0:
        bits.unsigned()
    elif order == 1:
        bits.read(1)
        bits.signed()
        bits.signed()
        for _ in range(bits.unsigned()):
            bits.signed()
    bits.unsigned()
    return number, _Sequence(number_bits, planes, bool(bits.read(1)))


def _skip_scaling_lists(bits: _Bits, lists: int) -> None:
    """7.3.2.1.1.1: a list ends early where the next scale would be 0."""
    for number in range(lists):
        if not bits.read(1):
            continue
        scale = 8
        for _ in range(16 if number < 6 else 64):
            scale = (scale + bits.signed()) % 256
            if scale == 0:
                break


class _EndedError(Exception):
    """A unit is shorter than its syntax."""


class _Bits:
    """Reads fixed and Exp-Golomb codes (7.2, 9.1) from a unit without its first byte. Raises _EndedError."""

    def __init__(self, payload: bytes) -> None:
        plain = payload.replace(b"\0\0\3", b"\0\0")  # 7.4.1: bytes that only keep start codes from appearing
        self._value, self._left = int.from_bytes(plain, "big"), 8 * len(plain)

    def read(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise _EndedError
        return self._value >> self._left & ((1 << count) - 1)

    def unsigned(self) -> int:
        zeros = 0
        while not self.read(1):
            zeros += 1
        return (1 << zeros) - 1 + self.read(zeros)

    def signed(self) -> int:
        code = self.unsigned()
        return (code + 1) // 2 if code % 2 else -(code // 2)
