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
from shared.schema import VERSION, VERSIONS
from shared.store import open_store
from shared.verify import verify_store

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / f"golden_store_v{VERSION}"
OLD = HERE / "golden_store_v1"
MAKER = runpy.run_path(str(HERE / "make_golden.py"))
BUMP = "raise VERSION in shared/schema.py, describe the change in FORMAT.md and run tests/contract/make_golden.py"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_writer_makes_the_golden_bytes(tmp_path, version):
    if "ng" in zlib.ZLIB_RUNTIME_VERSION:
        pytest.skip("this Python compresses with zlib-ng, which packs captions into other, equally valid bytes")
    MAKER["make_golden"](tmp_path / "store", version)
    made, golden = MAKER["files_below"](tmp_path / "store"), MAKER["files_below"](HERE / f"golden_store_v{version}")
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
    for name, value in (("GOLDEN", {VERSION: old}), ("SCHEMA", HERE / f"schema_v{VERSION}.json")):
        monkeypatch.setitem(MAKER["main"].__globals__, name, value)
    with pytest.raises(SystemExit, match="raise VERSION"):
        MAKER["main"]()
    assert next(old.glob("captions/*.json")).read_text() == "{}"


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_whole(version):
    golden = HERE / f"golden_store_v{version}"
    assert json.loads((golden / "store.json").read_bytes())["version"] == version
    assert verify_store(golden) == []


def test_a_store_is_written_in_the_lowest_version_that_has_what_it_holds(tmp_path):
    """A set with embeddings raises it, and without them it is the store that it was, to the bit."""
    import shutil

    from shared.store import open_writer

    store = tmp_path / "store"
    shutil.copytree(GOLDEN, store)
    with open_writer(store) as writer:
        writer.commit([], sets={name: entry for name, entry in writer.root.sets.items() if name != "vectors"})
    assert (store / "store.json").read_bytes() == (OLD / "store.json").read_bytes()


def test_a_version_that_is_too_low_or_unknown_is_told_from_one_that_is_read(tmp_path):
    from shared.errors import DamageFound, StoreError
    from shared.fingerprint import sealed_json
    from shared.store import parse_root

    content = json.loads((GOLDEN / "store.json").read_bytes())
    del content["digest"]
    with pytest.raises(DamageFound, match="not a root of version 1"):
        parse_root(sealed_json({**content, "version": 1}), tmp_path)
    with pytest.raises(StoreError, match=r"version 3.*reads 'clipmill-store' version 1 or 2: use the matching release"):
        parse_root(sealed_json({**content, "version": 3}), tmp_path)


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


def test_others_read_the_same_embeddings(plain):
    made = open_store(GOLDEN).manifest_set("vectors")
    assert made.embeddings.dtype == np.float16
    assert made.embeddings.tolist() == plain["sets"]["vectors"]["embeddings"]
    assert made.embeddings.tolist() == [[0.125, 0.25], [0.375, 0.5], [0.625, 0.75], [0.875, 1.0]]
    assert "embeddings" not in plain["sets"]["words"]


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
