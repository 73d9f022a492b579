"""Pictures that others refer to and that are not there, told by frame_num."""

from __future__ import annotations

import subprocess
from pathlib import Path

import av
import imageio_ffmpeg
import pytest

from preprocess.decode.frame_numbers import FrameNumbers
from preprocess.decode.nal import units

REFERENCE = 0x60


def encode(path: Path, *options: str) -> tuple[bytes, list[bytes]]:
    """(configuration, packets) of 40 frames."""
    source = ["-f", "lavfi", "-i", "testsrc2=s=48x32:r=10:d=4", "-c:v", "libx264", "-threads", "1"]
    subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *source, *options, str(path)], check=True)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        packets = [bytes(packet) for packet in container.demux(stream) if packet.size]
        return stream.codec_context.extradata, packets


def jumps(configuration: bytes, packets: list[bytes]) -> int:
    numbers = FrameNumbers("h264", configuration)
    for packet in packets:
        numbers.see(memoryview(packet))
    return numbers.jumps


def picture(packet: bytes) -> int:
    """Where its first picture unit begins."""
    return next(start for start, _ in units(4, packet) or () if packet[start] & 0x1F in (1, 5))


def is_reference(packet: bytes) -> bool:
    """Whether it is a picture that others refer to, and no key frame."""
    head = packet[picture(packet)]
    return bool(head & REFERENCE) and head & 0x1F == 1


# Each has something else before frame_num in its slices, or in its parameter sets.
STREAMS = {
    "plain": ["-g", "10", "-bf", "2", "-pix_fmt", "yuv420p"],
    "pyramid": ["-g", "40", "-x264-params", "bframes=7:b-adapt=0:b-pyramid=normal", "-pix_fmt", "yuv420p"],
    "baseline": ["-profile:v", "baseline", "-g", "40", "-pix_fmt", "yuv420p"],
    "interlaced": ["-flags", "+ildct+ilme", "-x264-params", "tff=1", "-pix_fmt", "yuv420p"],
    "slices": ["-x264-params", "slices=3:aud=1", "-pix_fmt", "yuv420p"],
    "scaling lists": ["-x264-params", "cqm=jvt", "-pix_fmt", "yuv420p"],
    "10 bit 4:4:4": ["-pix_fmt", "yuv444p10le"],
    "open": ["-x264-params", "open-gop=1:keyint=10:bframes=3", "-pix_fmt", "yuv420p"],
    "wraps": ["-x264-params", "ref=1:keyint=infinite:bframes=0", "-pix_fmt", "yuv420p"],
}


@pytest.mark.parametrize("kind", STREAMS)
def test_whole_streams_have_no_jump_and_those_that_lack_a_reference_have(tmp_path, kind):
    configuration, packets = encode(tmp_path / "video.mp4", *STREAMS[kind])
    assert jumps(configuration, packets) == 0
    lost = next(n for n in range(12, len(packets)) if is_reference(packets[n]))
    assert jumps(configuration, packets[:lost] + packets[lost + 1 :]) >= 1


def test_frames_that_none_refers_to_may_be_missing(tmp_path):
    configuration, packets = encode(tmp_path / "video.mp4", *STREAMS["plain"])
    kept = [packet for packet in packets if packet[picture(packet)] & REFERENCE]
    assert len(kept) < len(packets)
    assert jumps(configuration, kept) == 0


def test_a_reference_that_damage_made_look_unreferenced(tmp_path):
    configuration, packets = encode(tmp_path / "video.mp4", *STREAMS["plain"])
    damaged = next(n for n in range(12, len(packets)) if is_reference(packets[n]))
    changed = bytearray(packets[damaged])
    changed[picture(packets[damaged])] &= ~REFERENCE & 0xFF
    packets[damaged] = bytes(changed)
    assert jumps(configuration, packets) >= 1


@pytest.mark.parametrize("cut", [0, 5, 6, 8, 12, 20])
def test_parameter_sets_cut_short_are_left_for_the_decoder(tmp_path, cut):
    configuration, packets = encode(tmp_path / "video.mp4", *STREAMS["plain"])
    assert jumps(configuration[:cut], packets) >= 0
    assert jumps(configuration, [packet[:7] for packet in packets]) == 0


def test_streams_stored_in_another_way_are_not_followed():
    numbers = FrameNumbers("h264", b"\0\0\0\1\x67")
    numbers.see(memoryview(b"\0\0\0\1\x65"))
    other = FrameNumbers("vp9", b"")
    other.see(memoryview(b"\x82"))
    assert numbers.jumps == other.jumps == 0
