"""HowTo100M's JSON: one file for all videos, cut into entries as found, and the entries read with their faults."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from preprocess.captions import json_file
from preprocess.captions.json_file import json_entries
from preprocess.captions.read import read_track
from preprocess.captions.types import CaptionTrack, Cue
from shared.errors import Failure, InputFileError

ENTRY = '{"start": [0.5, 2], "end": [1.5, 3.25], "text": ["open the oven", "caf\\u00e9 é"]}'


def test_an_entry() -> None:
    track = read_track(ENTRY.encode(), "caption.json")
    assert track == CaptionTrack("json", (Cue(0.5, 1.5, "open the oven"), Cue(2.0, 3.25, "café é")), ())


def test_bad_cues_are_skipped_and_counted() -> None:
    entry = (
        '{"start": [0, NaN, -1, "2", 4, 5, true, 1e400], "end": [1, 2, 3, 3, 5, 6, 7, 8, 9],'
        ' "text": ["good", "a", "b", "c", 7, null, "d", "e"], "more": 1}'
    )
    track = read_track(entry.encode(), "caption.json")
    assert isinstance(track, CaptionTrack)
    assert track.cues == (Cue(0.0, 1.0, "good"),)
    assert dict(track.skipped) == {
        2: "start is no time: nan",
        3: "start is negative: -1",
        4: "start is no number: '2'",
        5: "text is no string: '7'",
        6: "text is no string: 'None'",
        7: "start is no number: 'True'",
        8: "start is no time: inf",
        9: "has no start and no text",
    }


@pytest.mark.parametrize(
    "data",
    [b"{}", b'{"start": [], "end": []}', b'{"start": 1, "end": [], "text": []}', b"[1]", b'{"start": [', b"[" * 9999,
     b'{"start": [' + b"9" * 5000 + b'], "end": [1], "text": ["a"]}'],
)  # fmt: skip
def test_what_is_no_entry(data: bytes) -> None:
    track = read_track(data, "caption.json")
    assert isinstance(track, Failure)
    assert track.reason == "not_captions"
    assert "start, end, text" in track.message


@pytest.mark.parametrize("chunk", [1, 7, 2**20])
def test_a_file_is_cut_into_entries_as_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(json_file, "_CHUNK", chunk)
    path = tmp_path / "caption.json"
    odd = '{"start" : [NaN],"end":[1.50],\n "text":["a } \\" , {"]}'
    path.write_text(f'\ufeff {{"-a": {ENTRY} ,\n"b":{odd}, "ü": [1, 2] ,"n": 12, "e":{{}}}}\n', encoding="utf-8")
    assert list(json_entries(path, 10_000)) == [
        ("-a", ENTRY.encode()), ("b", odd.encode()), ("ü", b"[1, 2]"), ("n", b"12"), ("e", b"{}"),
    ]  # fmt: skip
    path.write_text(" { } ")
    assert list(json_entries(path, 10_000)) == []


def test_an_entry_that_is_too_large_is_told(tmp_path: Path) -> None:
    path = tmp_path / "caption.json"
    path.write_text(json.dumps({"a": "x" * 200, "b": 1}))
    assert list(json_entries(path, 100)) == [("a", None), ("b", b"1")]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "expected '{' after 0"),
        (b"[1]", "expected '{' after 0"),
        (b'{"a": {"start": [1', "expected a JSON value of at most"),
        (b'{"a": 1', "expected ',' or '}'"),
        (b'{"a" 1}', "expected ':'"),
        (b'{"a": 1, 2: 3}', "a video id in quotes"),
        (b'{"a": 1} x', "the end of the file"),
        (b'{"a": 1,}', "a JSON value"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a": ' + b"[" * 200_000, "a JSON value"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "caption.json"
    path.write_bytes(content)
    with pytest.raises(InputFileError, match=says) as caught:
        list(json_entries(path, 1000))
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="No such file"):
        list(json_entries(tmp_path / "caption.json", 1000))
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(InputFileError, match="not a regular file"):
            list(json_entries(path, 1000))


def test_memory_is_that_of_an_entry_not_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "_CHUNK", 2**14)
    path = tmp_path / "caption.json"
    entry = json.dumps({"start": list(range(200)), "end": list(range(200)), "text": ["word"] * 200})
    with path.open("w") as file:
        file.write("{" + ",".join(f'"v{number}": {entry}' for number in range(1500)) + "}")
    assert path.stat().st_size > 5_000_000
    tracemalloc.start()
    try:
        assert sum(1 for _ in json_entries(path, 2**20)) == 1500
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()
