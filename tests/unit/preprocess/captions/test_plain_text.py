"""A text without times, as the captions of one video."""

from __future__ import annotations

import pytest

from preprocess.captions.read import read_track
from preprocess.captions.types import CaptionTrack, Cue
from shared.errors import Failure


@pytest.mark.parametrize("name", ["l.txt", "L.TXT"])
def test_it_is_one_caption_of_the_whole_file(name: str) -> None:
    track = read_track(b"\xef\xbb\xbf A man\r\n\r\nopens <b>\tthe oven ", name)
    assert track == CaptionTrack("txt", (Cue(0.0, 86_400.0, "A man opens <b> the oven"),), ())


def test_what_has_a_format_keeps_its_times() -> None:
    for data in (
        b"WEBVTT\n\n00:01.000 --> 00:02.000\na",
        b"start,end,text\n1,2,a",
        b'{"start":[1],"end":[2],"text":["a"]}',
    ):
        track = read_track(data, "l.txt")
        assert isinstance(track, CaptionTrack)
        assert [(cue.start, cue.end) for cue in track.cues] == [(1.0, 2.0)]


@pytest.mark.parametrize(
    ("data", "name", "why"),
    [
        (b"00:01.000 --> 00:02.000\nwords", "l.txt", "arrows as between times"),
        (b"word " * 20_001, "l.txt", "text of 100004 characters, expected at most 100000"),
        (b"words", "l.text", "a text for the whole file is named .txt"),
    ],
)
def test_what_is_no_such_text(data: bytes, name: str, why: str) -> None:
    failure = read_track(data, name)
    assert isinstance(failure, Failure)
    assert failure.reason == "not_captions"
    assert why in failure.message
    assert not isinstance(read_track(b"word " * 20_000, "l.txt"), Failure)
