import struct

import pytest

from preprocess.decode.sniff import sniff
from preprocess.decode.video import DecodeFailure


def box(kind: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I4s", 8 + len(body), kind) + body


@pytest.mark.parametrize(
    ("head", "demuxer"),
    [
        (box(b"ftyp", b"isom") + box(b"moov"), "mov"),
        (box(b"moov") + box(b"mdat"), "mov"),
        (box(b"ftyp", b"avif\0\0\0\0"), "image"),
        (b"\x1a\x45\xdf\xa3\x80", "matroska"),
        (b"RIFF\x04\0\0\0AVI ", "avi"),
        (b"RIFF\x04\0\0\0WEBP", "image"),
        (b"RIFF\x04\0\0\0WAVE", "wav"),
        (b"\x00\x00\x01\xba\x44", "mpeg"),
        (b"FLV\x01\x05", "flv"),
        (b"GIF89a", "gif"),
        (b"\xff\xd8\xff\xe0", "image"),
        (b"\x89PNG\r\n\x1a\n", "image"),
        (b"BM\x10\0\0\0\0\0\0\0", "image"),
        ((b"\x47" + bytes(187)) * 4, "mpegts"),
        (bytes(4) + (b"\x47" + bytes(191)) * 4, "mpegts"),
    ],
)
def test_media_are_told_by_their_first_bytes(head, demuxer, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(head)
    assert sniff(path).demuxer == demuxer


@pytest.mark.parametrize(
    "text",
    [
        b"#EXTM3U\n#EXTINF:1,\nhttp://example.org/a.ts\n",
        b"ffconcat version 1.0\nfile other.mp4\n",
        b"BMW is a make of cars\n",
        b"<?xml version='1.0'?><MPD></MPD>",
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\n",
        b"G is the seventh letter\n",
        b"\0",
    ],
)
def test_text_and_unknown_bytes_are_no_media(text, tmp_path):
    path = tmp_path / "video.mp4"
    path.write_bytes(text)
    with pytest.raises(DecodeFailure) as caught:
        sniff(path)
    assert caught.value.failure.reason == "not_a_media_file"
    assert caught.value.failure.stage == "decode"


def test_an_index_that_is_gone_means_truncated(tmp_path):
    path = tmp_path / "video.mp4"
    path.write_bytes(box(b"ftyp", b"isom") + struct.pack(">I4s", 5000, b"mdat") + bytes(100))
    with pytest.raises(DecodeFailure, match=r"truncated.*5012.*120"):
        sniff(path)


def test_media_that_ends_too_early_is_cut_off(tmp_path):
    path = tmp_path / "video.mp4"
    whole = box(b"ftyp", b"isom") + box(b"moov") + box(b"mdat", bytes(100))
    path.write_bytes(whole)
    assert sniff(path).cut_off == ""
    path.write_bytes(whole[:-1])
    assert "mdat" in sniff(path).cut_off
    path.write_bytes(whole + b"\xff\xfe trailing")
    assert sniff(path).cut_off == ""


def test_boxes_of_64_bits_and_to_the_end_of_the_file(tmp_path):
    path = tmp_path / "video.mp4"
    long_box = struct.pack(">I4sQ", 1, b"mdat", 16 + 50) + bytes(50)
    path.write_bytes(box(b"moov") + long_box)
    assert sniff(path).cut_off == ""
    path.write_bytes(box(b"moov") + long_box[:-1])
    assert sniff(path).cut_off
    path.write_bytes(box(b"moov") + struct.pack(">I4s", 0, b"mdat") + bytes(50))
    assert sniff(path).cut_off == ""


def test_matroska_announces_its_length(tmp_path):
    path = tmp_path / "video.mkv"
    head = b"\x1a\x45\xdf\xa3\x82ab"
    segment = b"\x18\x53\x80\x67\x01\x00\x00\x00\x00\x00\x00\x64"
    path.write_bytes(head + segment + bytes(100))
    assert sniff(path).cut_off == ""
    path.write_bytes(head + segment + bytes(99))
    assert "119" in sniff(path).cut_off
    path.write_bytes(head + b"\x18\x53\x80\x67\x01\xff\xff\xff\xff\xff\xff\xff" + bytes(3))
    assert sniff(path).cut_off == ""


def test_avi_announces_its_length(tmp_path):
    path = tmp_path / "video.avi"
    path.write_bytes(b"RIFF" + struct.pack("<I", 104) + b"AVI " + bytes(100))
    assert sniff(path).cut_off == ""
    path.write_bytes(b"RIFF" + struct.pack("<I", 104) + b"AVI " + bytes(60))
    assert sniff(path).cut_off
