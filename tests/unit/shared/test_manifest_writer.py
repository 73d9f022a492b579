"""Writing manifest sets: parts, twins, quoting, names."""

from __future__ import annotations

import csv
import os

import numpy as np
import pytest

from shared import manifest_writer
from shared.errors import RequestError, StoppedEarly
from shared.manifest_writer import CAPTION_COLUMNS, CsvParts, ManifestSetWriter, seconds

FACTS = {
    "name": "default",
    "stream": "default",
    "stream_fingerprint": "ab",
    "config": {},
    "tokenizer": {"pad_id": 0},
    "report": {},
}


def read(path):
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.reader(lines))


def fill(directory, videos=5):
    writer = ManifestSetWriter(directory)
    for video in range(videos):
        texts = [f"caption {n} of {video}" for n in range(3)]
        ids = [np.arange(1, video + n + 1, dtype=np.int32) for n in range(3)]
        first = writer.add_captions(f"v{video}", [0, 1, 2], [1, 2, 3], texts, ids)
        writer.add_window("train" if video % 2 else "val", f"v{video}", 0, 3, 0, 3, range(first, first + 3))
        writer.add_video(f"v{video}", "train" if video % 2 else "val", 3.0, 3)
    return writer


def test_tables_and_twins_agree(tmp_path):
    info, files = fill(tmp_path).finish(**FACTS)
    rows = read(tmp_path / "captions.csv")
    assert tuple(rows[0]) == CAPTION_COLUMNS
    tokens, offsets = np.load(tmp_path / "tokens.npy"), np.load(tmp_path / "offsets.npy")
    assert (tokens.dtype, offsets.dtype) == (np.int32, np.int64)
    assert (info.captions, info.tokens) == (15, len(tokens)) == (len(rows) - 1, offsets[-1])
    for number, row in enumerate(rows[1:]):
        assert row[4].split() == [str(i) for i in tokens[offsets[number] : offsets[number + 1]]]
    assert rows[1][4] == "", "a caption without tokens has an empty field"
    assert info.splits == {"train": 2, "val": 3}
    assert {file.path for file in files} == {f"{info.folder}/{path.name}" for path in tmp_path.iterdir()}
    assert read(tmp_path / "videos.csv")[2] == ["v1", "train", "3", "3", "3", "1"]
    assert read(tmp_path / "windows-val.csv")[2] == ["v2", "0", "3", "0", "3", "6 7 8"]


def test_tables_are_cut_into_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest_writer, "PART_ROWS", 4)
    info, _ = fill(tmp_path).finish(**FACTS)
    assert info.part_files("captions") == [f"captions{part}.csv" for part in ("", ".00001", ".00002", ".00003")]
    assert [info.parts[file] for file in info.part_files("captions")] == [4, 4, 4, 3]
    assert info.part_files("videos") == ["videos.csv", "videos.00001.csv"]
    assert info.part_files("windows-val") == ["windows-val.csv"]
    parts = [read(tmp_path / file) for file in info.part_files("captions")]
    assert all(tuple(part[0]) == CAPTION_COLUMNS for part in parts), "every part has the header"
    assert [row[3] for part in parts for row in part[1:]] == [f"caption {n} of {v}" for v in range(5) for n in range(3)]


def test_a_table_that_ends_with_its_part_has_no_empty_one(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest_writer, "PART_ROWS", 5)
    info, _ = fill(tmp_path).finish(**FACTS)
    assert info.part_files("videos") == ["videos.csv"]
    assert info.part_files("captions") == ["captions.csv", "captions.00001.csv", "captions.00002.csv"]


@pytest.mark.parametrize(
    "text", ["a,b", 'say "hot"', "two\nlines", "lone\rreturn", "dos\r\n", " spaced ", "", "é\u2028", "\x00"]
)
def test_any_text_comes_back(tmp_path, text):
    table = CsvParts(tmp_path, "t", ("a", "b"))
    table.write((text, "next"))
    table.write(("after", text))
    ((path, rows),) = table.finish()
    assert rows == 2
    assert read(path) == [["a", "b"], [text, "next"], ["after", text]]


def test_rows_end_with_a_line_feed_alone(tmp_path):
    table = CsvParts(tmp_path, "t", ("a", "b"))
    table.write(("1", "lone\rreturn"))
    table.write(("2", "b\r\n"))
    ((path, _),) = table.finish()
    assert path.read_bytes() == b'a,b\n1,"lone\rreturn"\n2,"b\r\n"\n'


def test_same_content_same_bytes_and_folder(tmp_path):
    first, _ = fill(tmp_path / "a").finish(**FACTS)
    again, _ = fill(tmp_path / "b").finish(**FACTS)
    assert first == again
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.parametrize("change", [{"report": {"kept": 1}}, {"stream_fingerprint": "cd"}, {"config": {"k": 2}}])
def test_whatever_manifest_json_says_names_the_folder(tmp_path, change):
    """Otherwise a new set would be moved over the files of the old one before the root is replaced."""
    plain, _ = fill(tmp_path / "a").finish(**FACTS)
    changed, _ = fill(tmp_path / "b").finish(**(FACTS | change))
    assert plain.folder != changed.folder


@pytest.mark.parametrize("split", ["../up", "a/b", "", "train.00001", "val 1", ".hidden"])
def test_a_split_that_cannot_name_a_file_is_refused(tmp_path, split):
    writer = fill(tmp_path)
    with pytest.raises(RequestError, match="cannot name a file"):
        writer.add_window(split, "v0", 0, 1, 0, 1, [0])
    writer.finish(**FACTS)


def test_an_empty_set_is_a_set(tmp_path):
    info, _ = ManifestSetWriter(tmp_path).finish(**FACTS)
    assert (info.captions, info.tokens, info.splits) == (0, 0, {})
    assert np.load(tmp_path / "offsets.npy").tolist() == [0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (-1e-9, "0"),
        (10, "10"),
        (100.0, "100"),
        (1.25, "1.25"),
        (1 / 3, "0.333333"),
        (1e5, "100000"),
    ],
)
def test_seconds(value, text):
    assert seconds(value) == text


def test_a_really_full_disk_stops_early(small_disk, monkeypatch):
    """Bigger than any buffer, in tables and twins alike."""
    writer = ManifestSetWriter(small_disk / "set")
    ids = [np.arange(4000, dtype=np.int32)] * 10
    with pytest.raises(StoppedEarly):  # noqa: PT012  (which video fills the disk depends on the file system)
        for video in range(1000):
            writer.add_captions(f"v{video}", range(10), range(10), ["text"] * 10, ids)
    os.truncate(small_disk / "set" / "captions.csv", 0)
    os.truncate(small_disk / "set" / "tokens.npy", 0)
    writer.finish(**FACTS)
