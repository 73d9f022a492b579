"""The format is a promise: the golden store's bytes are made again exactly, and read by others without us."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from shared.captions import read_captions
from shared.schema import VERSION
from shared.store import open_store
from shared.verify import verify_store

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / f"golden_store_v{VERSION}"
MAKER = runpy.run_path(str(HERE / "make_golden.py"))
BUMP = "raise VERSION in shared/schema.py, describe the change in FORMAT.md and run tests/contract/make_golden.py"


def test_the_writer_makes_the_golden_bytes(tmp_path):
    if "ng" in zlib.ZLIB_RUNTIME_VERSION:
        pytest.skip("this Python compresses with zlib-ng, which packs captions into other, equally valid bytes")
    MAKER["make_golden"](tmp_path / "store")
    made, golden = MAKER["files_below"](tmp_path / "store"), MAKER["files_below"](GOLDEN)
    assert sorted(made) == sorted(golden), f"the writer makes other files: {BUMP}"
    changed = [name for name in golden if made[name] != golden[name]]
    assert not changed, f"the writer makes other bytes: {BUMP}"


def test_it_stays_tiny():
    assert sum(map(len, MAKER["files_below"](GOLDEN).values())) < 40_000


def test_the_schema_is_that_of_its_version():
    described = json.loads((HERE / f"schema_v{VERSION}.json").read_text())
    assert MAKER["describe_schema"]() == described, f"a record or a table is not what version {VERSION} says: {BUMP}"


def test_the_schema_description_sees_every_change(monkeypatch):
    from shared import manifest_writer, schema

    before = MAKER["describe_schema"]()

    class FileEntry(schema.FileEntry):
        colour: str = "red"

    monkeypatch.setattr(schema, "FileEntry", FileEntry)
    assert MAKER["describe_schema"]()["records"] != before["records"]
    monkeypatch.setattr(manifest_writer, "CAPTION_COLUMNS", ("video_id",))
    assert MAKER["describe_schema"]()["tables"] != before["tables"]


def test_a_golden_store_is_not_replaced_by_other_bytes(tmp_path, monkeypatch):
    import shutil

    old = tmp_path / "golden"
    shutil.copytree(GOLDEN, old)
    next(old.glob("captions/*.json")).write_text("{}")
    for name, value in (("GOLDEN", old), ("SCHEMA", HERE / f"schema_v{VERSION}.json")):
        monkeypatch.setitem(MAKER["main"].__globals__, name, value)
    with pytest.raises(SystemExit, match="raise VERSION"):
        MAKER["main"]()
    assert next(old.glob("captions/*.json")).read_text() == "{}"


def test_it_is_whole():
    assert verify_store(GOLDEN) == []


@pytest.fixture(scope="module")
def plain():
    """What a reader that knows nothing of clipmill finds."""
    command = [sys.executable, "-I", str(HERE / "plain_reader.py"), str(GOLDEN)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_others_read_the_same_rows(plain):
    store = open_store(GOLDEN)
    assert sorted(plain["streams"]) == ["plain", "thumbs", "wide"]
    for name, found in plain["streams"].items():
        stream = store.stream(name)
        assert stream.video_ids == sorted(found["videos"]) == ["cat", "küche", "zoo"]
        assert dict(stream.failures) == {
            video_id: failure for video_id, failure in stream.failures if found["failed"][video_id] == failure.reason
        }
        assert sorted(found["failed"]) == ["absent", "broken"]
        for number, video_id in enumerate(stream.video_ids):
            video = found["videos"][video_id]
            np.testing.assert_array_equal(stream.read(number), np.array(video["rows"], stream.dtype))
            np.testing.assert_array_equal(stream.spans(number), video["spans"])
            np.testing.assert_array_equal(stream.valid(number), video["valid"])
            assert (stream.durations[number], stream.record(number).partial) == (video["duration"], video["partial"])


def test_the_values_are_those_that_were_written(plain):
    """Against the numbers of make_golden.py, so that writer and readers cannot be wrong together."""
    wide = plain["streams"]["wide"]["videos"]["zoo"]
    assert wide["rows"][0] == [0.125, 0.25, 0.375]
    assert wide["spans"][:3] == [[0.0, 1.0], [1.125, 2.125], [2.0, 3.0]]
    assert wide["spans"][-1] == [4.0, 4.5]
    assert wide["valid"] == [0, 0, 0, 0, 7]
    assert plain["streams"]["thumbs"]["videos"]["cat"]["rows"][0] == [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]]


def test_others_read_the_same_captions(plain):
    found = [(v["id"], v["split"], [(n, bytes.fromhex(d)) for n, d in v["tracks"].items()]) for v in plain["captions"]]
    kept = [(v.video_id, v.split, [(t.name, t.data) for t in v.tracks]) for v in read_captions(open_store(GOLDEN))]
    assert found == kept
    assert [(track.name, track.data) for track in MAKER["TRACKS"]] == kept[0][2]


def test_others_read_the_same_set(plain):
    manifest, found = open_store(GOLDEN).manifest_set("words"), plain["sets"]["words"]
    assert [row["text"] for row in found["tables"]["captions"]] == manifest.caption_texts
    assert manifest.caption_texts == ['a cat, "jumping"', "", "lone\rreturn\nand é", "NA"]
    assert found["tables"]["videos"] == manifest.videos
    assert found["tables"]["failures"] == manifest.failures
    assert found["tokens"] == [101, 7, 102, 101, 9, 9, 102, 5]
    assert found["splits"] == {"test": 1, "train": 2}
    windows = manifest.windows("train")
    for number, row in enumerate(found["tables"]["windows-train"]):
        assert row["captions"].split() == [str(c) for c in windows.candidates_of(number)]
        assert (float(row["start"]), int(row["rows"])) == (windows.start_W[number], windows.rows_W[number])
