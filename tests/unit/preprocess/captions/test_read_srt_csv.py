"""SRT as it is found, and CSV with a header."""

from __future__ import annotations

import csv

import pytest

from preprocess.captions.read import read_track
from preprocess.captions.types import CaptionTrack, Cue


def read(text: str | bytes, name: str) -> CaptionTrack:
    track = read_track(text if isinstance(text, bytes) else text.encode(), name)
    assert isinstance(track, CaptionTrack)
    return track


def srt(text: str | bytes) -> CaptionTrack:
    return read(text, "a.srt")


def test_ordinary_cues() -> None:
    track = srt("1\n00:00:00,500 --> 00:00:07,000\na\nb\n\n2\n00:00:07,000 --> 00:00:08,250 X1:40\nc\n")
    assert track.cues == (Cue(0.5, 7.0, "a\nb"), Cue(7.0, 8.25, "c"))
    assert track.skipped == ()


def test_times_as_they_are_found() -> None:
    for line, start, end in [
        ("0:00:00.000 --> 0:00:00.500", 0.0, 0.5),
        ("00:01,5-->00:02,25", 1.5, 2.25),
        ("00:00:01 -> 00:00:02", 1.0, 2.0),
        ("00:00:01:250 --> 00:00:02:500", 1.25, 2.5),
        ("00:00:01,1234567 --> 00:00:02", 1.123, 2.0),
    ]:
        assert srt(f"1\n{line}\na").cues == (Cue(start, end, "a"),)


def test_malformed_cues_are_skipped_and_counted() -> None:
    track = srt(
        "title\n\n1\n00:00:01,000 --> 00:00:02,000\na\n\n2\n00:00:1d,000 --> 00:00:03,000\nb\n\n"
        "3\nno times\n\n4\n00:00:61,000 --> 00:01:03,000\nc\n\n5\n00:00:05,000 --> 00:00:06,000\nd\n"
    )
    assert track.cues == (Cue(1.0, 2.0, "a"), Cue(5.0, 6.0, "d"))
    assert [line for line, _ in track.skipped] == [1, 8, 11, 15]


def test_missing_numbers_blank_lines_and_texts() -> None:
    track = srt(
        "00:00:01,000 --> 00:00:02,000\na\n00:00:02,000 --> 00:00:03,000\n\n"
        "7\n00:00:03,000 --> 00:00:04,000\nc\n8\n00:00:04,000 --> 00:00:05,000\nd\n20\n00:00:05,000 --> 00:00:06,000\ne"
    )
    assert [cue.text for cue in track.cues] == ["a", "", "c", "d\n20", "e"]


def test_blank_lines_inside_a_cue_belong_to_it() -> None:
    track = srt("1\n00:00:01,000 --> 00:00:02,000\n\na\n\nb --> c\n\n2\n00:00:02,000 --> 00:00:03,000\nd")
    assert [cue.text for cue in track.cues] == ["\na\n\nb --> c", "d"]


def test_old_files_are_windows_1252_unless_most_of_it_is_utf8() -> None:
    start = "1\n00:00:01,000 --> 00:00:02,000\n"
    assert srt(start.encode() + "café".encode("cp1252")).cues[0].text == "café"
    assert srt(start.encode() + "café é\xff".encode()[:-1] + b"\xfe").cues[0].text == "café é\ufffd\ufffd"


def test_csv_columns_by_name() -> None:
    track = read('text,end,start,task\n"a, ""b""\nc",2.5,1,x\nd,4,3,y\n', "a.csv")
    assert track.cues == (Cue(1.0, 2.5, 'a, "b"\nc'), Cue(3.0, 4.0, "d"))


def test_csv_rows_that_are_none_are_skipped_and_counted() -> None:
    track = read("start,end,text\nx,2,a\n1,2\n\nnan,2,c\n1,inf,d\n3,4,e\n5,6,f\0g\n", "a.csv")
    assert track.cues == (Cue(3.0, 4.0, "e"), Cue(5.0, 6.0, "f\ufffdg"))
    assert [line for line, _ in track.skipped] == [2, 3, 5, 6]


def test_a_csv_field_beyond_the_limit_costs_its_row() -> None:
    limit = csv.field_size_limit(1000)
    try:
        track = read("start,end,text\n1,2," + "a" * 2000 + "\n3,4,b\n", "a.csv")
    finally:
        csv.field_size_limit(limit)
    assert track.cues == (Cue(3.0, 4.0, "b"),)
    assert [line for line, _ in track.skipped] == [2]


@pytest.mark.parametrize("more", [1, 100])
def test_a_quote_that_is_never_closed_costs_its_row(more: int) -> None:
    rows = "".join(f"{at},{at + 1},b\n" for at in range(more))
    track = read('start,end,text\n1,2,"a\n' + rows, "a.csv")
    assert [cue.text for cue in track.cues] == ["b"] * more
    assert [line for line, _ in track.skipped] == [2]


def test_a_quote_inside_a_field_is_text() -> None:
    assert [cue.text for cue in read('start,end,text\n1,2,a 5" pan\n2,3,b\n', "a.csv").cues] == ['a 5" pan', "b"]
