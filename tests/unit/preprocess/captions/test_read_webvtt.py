"""WebVTT: what the specification's parser takes, and what it skips."""

from __future__ import annotations

import pytest

from preprocess.captions.read import read_track
from preprocess.captions.types import CaptionTrack, Cue
from shared.errors import Failure


def webvtt(text: str | bytes) -> CaptionTrack:
    track = read_track(text if isinstance(text, bytes) else text.encode(), "a.vtt")
    assert isinstance(track, CaptionTrack)
    assert track.format == "webvtt"
    return track


def timing(line: str) -> Cue | None:
    cues = webvtt(f"WEBVTT\n\n{line}\nText").cues
    return cues[0] if cues else None


@pytest.mark.parametrize(
    ("line", "start", "end"),
    [
        ("00:00.000 --> 00:02.050", 0.0, 2.05),
        ("00:00:00.142 --> 00:00:00.519", 0.142, 0.519),
        ("0:00:01.000 --> 0:00:02.000", 1.0, 2.0),
        ("000:00:01.000 --> 100:00:02.000", 1.0, 360002.0),
        ("\t00:01.000-->00:02.000align:start", 1.0, 2.0),
        ("00:01.000\t-->\t00:02.000 region:fred-->", 1.0, 2.0),
        ("120:00.000 --> 120:10.000", 432000.0, 432600.0),
        ("00:05.000 --> 00:02.000 position:10%", 5.0, 2.0),
    ],
)
def test_times(line: str, start: float, end: float) -> None:
    assert timing(line) == Cue(start, end, "Text")


@pytest.mark.parametrize(
    "line",
    [
        "00:00.00 --> 00:02.000",
        "00:00.0000 --> 00:02.000",
        "00:000.000 --> 00:02.000",
        "000:00.000 --> 00:02.000",
        "00.00.000 --> 00:02.000",
        "00:00,000 --> 00:02,000",
        "00:60.000 --> 01:02.000",
        "00:60:00.000 --> 01:02:00.000",
        ".-004 --> 00:02.000",
        "-00:01.000 --> 00:02.000",
        "00:00.000 -> 00:02.000 -->",
        "٠٠:٠٠.٠٠٠ --> ٠٠:٠٢.٠٠٠",
        "9999999999:00:00.000 --> 00:02.000",
        "-->",
    ],
)
def test_malformed_timings_cost_their_cue_only(line: str) -> None:
    track = webvtt(f"WEBVTT\n\n{line}\nText\n\n00:03.000 --> 00:04.000\nnext")
    assert track.cues == (Cue(3.0, 4.0, "next"),)
    assert [number for number, _ in track.skipped] == [3]


def test_blocks() -> None:
    track = webvtt(
        "WEBVTT - a title\nKind: captions\n\nSTYLE\n::cue { color: red }\n\nREGION\nid:a\n\nNOTE one\nmore\n\n"
        "NOTE\n\nan id\n00:01.000 --> 00:02.000\nA\nB\n00:02.000 --> 00:03.000\n00:03.000 --> 00:04.000\nD\n\n\n\n"
        "stray\ntext\n\n1\n00:05.000 --> 00:06.000"
    )
    assert [(cue.start, cue.text) for cue in track.cues] == [(1, "A\nB"), (2, ""), (3, "D"), (5, "")]
    assert track.skipped == ((25, "a block without a timing line"),)


def test_a_header_without_a_blank_line_ends_at_the_first_arrow() -> None:
    assert webvtt("WEBVTT\n00:11.000 --> 00:13.000\nTest").cues == (Cue(11.0, 13.0, "Test"),)


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_line_breaks_and_byte_order_mark(line_break: str) -> None:
    text = "\ufeffWEBVTT\n\n00:00.000 --> 00:02.000\na\nb\n".replace("\n", line_break)
    assert webvtt(text).cues == (Cue(0.0, 2.0, "a\nb"),)


def test_bytes_that_are_no_utf8_and_nul_become_replacement_characters() -> None:
    assert webvtt(b"WEBVTT\n\n00:00.000 --> 00:02.000\na\xffb\0c").cues == (Cue(0.0, 2.0, "a\ufffdb\ufffdc"),)
    assert webvtt("WEBVTT\n\n00:00.000 --> 00:02.000\nä".encode("utf-16")).cues == (Cue(0.0, 2.0, "ä"),)


def test_a_file_may_hold_no_cue() -> None:
    assert webvtt("WEBVTT").cues == ()


@pytest.mark.parametrize(
    ("data", "name", "reason"),
    [
        (b"", "a.vtt", "empty_file"),
        (b"\xef\xbb\xbf \n\r\n", "a.srt", "empty_file"),
        (b"garbage\n\n00:00.000 --> 00:02.000\ntext", "a.vtt", "not_captions"),
        (b"WEBVTTX\n\n00:00.000 --> 00:02.000\ntext", "a.vtt", "not_captions"),
        (b" WEBVTT\n\n00:00.000 --> 00:02.000\ntext", "a.vtt", "not_captions"),
        (b"00:00.000 --> 00:02.000\ntext", "a.txt", "not_captions"),
        (b"some text", "a.srt", "not_captions"),
        (b"begin,end,text\n0,1,a", "a.csv", "not_captions"),
        (bytes(range(256)), "a.bin", "not_captions"),
    ],
)
def test_files_that_are_no_captions(data: bytes, name: str, reason: str) -> None:
    failure = read_track(data, name)
    assert isinstance(failure, Failure)
    assert (failure.reason, failure.stage) == (reason, "captions")
    assert failure.message.startswith(name)


def test_the_content_counts_before_the_extension() -> None:
    assert webvtt("WEBVTT\n\n00:00.000 --> 00:02.000\na").cues
    for data, name, expected in [
        (b"WEBVTT\n\n00:00.000 --> 00:02.000\na", "a.srt", "webvtt"),
        (b"1\n00:00:00,000 --> 00:00:02,000\na", "a.vtt", "srt"),
        (b"text,end,start\na,2,0", "a.srt", "csv"),
        (b"00:00:00.000 --> 00:00:02.000\na", "A.SRT", "srt"),
    ]:
        track = read_track(data, name)
        assert isinstance(track, CaptionTrack)
        assert (track.format, track.cues) == (expected, (Cue(0.0, 2.0, "a"),))
