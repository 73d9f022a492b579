"""Every damage is found and named: changed bits, missing and extra files, and files that do not fit each other."""

from __future__ import annotations

import gzip
import json
import random

import numpy as np
import pytest
import xxhash

from shared.fingerprint import canonical_json, hash_bytes, sealed_json
from shared.schema import FileEntry
from shared.shard_writer import npy_bytes
from shared.store import ROOT, open_store
from shared.verify import verify_store

BOTH = pytest.mark.parametrize("container", ["npy", "h5"])


@pytest.fixture
def path(tmp_path, samples):
    return samples.store(tmp_path / "s")


def names(path):
    return [damage.path for damage in verify_store(path)]


def only(path, pattern):
    (file,) = path.glob(pattern)
    return file


def accept(path, file, data):
    """Write `data` and have the root vouch for it, as a faulty writer would: hashes match, contents do not."""
    file.write_bytes(data)
    root = open_store(path).root
    entry = FileEntry(bytes=len(data), xxh3=hash_bytes(data))
    files = root.files | {file.relative_to(path).as_posix(): entry}
    (path / ROOT).write_bytes(root.model_copy(update={"files": files}).to_bytes())


def edit_root(path, **changes):
    (path / ROOT).write_bytes(open_store(path).root.model_copy(update=changes).to_bytes())


@BOTH
def test_a_bit_of_any_file_is_found_and_named(tmp_path, samples, container):
    path = samples.store(tmp_path / "s", container)
    (path / "runs").mkdir()
    (path / "runs" / "a.json").write_bytes(sealed_json({"host": "h"}))
    chance = random.Random(0)
    for file in [file for file in path.rglob("*") if file.is_file()]:
        data = file.read_bytes()
        for _ in range(4):
            bit = chance.randrange(len(data) * 8)
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            file.write_bytes(flipped)
            assert file.relative_to(path).as_posix() in names(path), (file, bit)
        file.write_bytes(data)
    assert names(path) == []


def test_missing_cut_and_extra_files_are_named(path):
    rows = sorted(path.glob("features/default/*.npy"))
    rows[0].unlink()
    rows[1].write_bytes(rows[1].read_bytes()[:-3])
    (path / "features/default/extra.txt").write_text("x")
    (path / "manifests/link").symlink_to("nowhere")
    found = {damage.path: damage.what for damage in verify_store(path)}
    assert found[rows[0].relative_to(path).as_posix()] == "missing"
    assert "bytes, expected" in found[rows[1].relative_to(path).as_posix()]
    assert "orphan" in found["features/default/extra.txt"]
    assert "orphan" in found["manifests/link"]
    assert len(found) == 4


def test_a_damaged_root_is_named_and_runs_are_still_checked(path):
    (path / ROOT).write_bytes((path / ROOT).read_bytes()[:-2])
    (path / "runs").mkdir()
    for name, data in (("bad", b'{"digest": "0"}'), ("worse", b"\xff"), ("good", sealed_json({"a": 1}))):
        (path / "runs" / f"{name}.json").write_bytes(data)
    assert names(path) == [ROOT, "runs/bad.json", "runs/worse.json"]


def test_progress_names_every_file(path):
    seen = []
    verify_store(path, seen.append)
    assert set(open_store(path).root.files) <= set(seen)


def test_a_wrong_block_is_named_by_its_number(path):
    file = sorted(path.glob("features/default/*.npy"))[0]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    accept(path, file, bytes(data))
    (damage,) = verify_store(path)
    assert damage.path == file.relative_to(path).as_posix()
    assert damage.what == "block checksums differ in blocks [0]"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"fingerprint": "cd"}, "belongs to another configuration"),
        ({"unit": "99"}, "belongs to another configuration"),
        ({"failed": []}, "counts other rows or videos"),
        ({"checksums": {"block_rows": 4096, "xxh3_64": ""}}, "block checksums differ in blocks [0]"),
        ({"spans": True}, "is missing"),
        ({"valid": True}, "is missing"),
        ({"dtype": "float32"}, "npy header"),
        ({"surprise": 1}, "is not a shard index"),
    ],
)
def test_an_index_that_does_not_fit_is_found(path, change, what):
    file = sorted(path.glob("features/default/*.json"))[0]
    accept(path, file, canonical_json(json.loads(file.read_bytes()) | change))
    assert any(what in damage.what and file.stem in damage.path for damage in verify_store(path))


def test_another_block_size_is_no_damage(path):
    """The block size stands in the index, so another writer may choose another one."""
    file = sorted(path.glob("features/default/*.json"))[0]
    index = json.loads(file.read_bytes())
    rows = np.load(file.with_suffix(".npy"))
    blocks = "".join(xxhash.xxh3_64_hexdigest(rows[n : n + 2].tobytes()) for n in range(0, len(rows), 2))
    accept(path, file, canonical_json(index | {"checksums": {"block_rows": 2, "xxh3_64": blocks}}))
    assert names(path) == []


@pytest.mark.parametrize("suffix", [".npy", ".json", "jsonl.gz", "manifest.json", "tokens.npy", "offsets.npy"])
def test_a_file_that_the_root_should_name_and_does_not(path, suffix):
    files = open_store(path).root.files
    dropped = next(file for file in files if file.endswith(suffix))
    edit_root(path, files={file: entry for file, entry in files.items() if file != dropped})
    found = verify_store(path)
    assert any(damage.path == ROOT for damage in found)
    assert any(damage.path == dropped and "orphan" in damage.what for damage in found)


def test_a_video_in_two_shards_is_found(path, samples):
    _, other = sorted(path.glob("features/default/*.json"))
    index = json.loads(other.read_bytes())
    index["videos"][0]["id"] = "v00"
    accept(path, other, canonical_json(index))
    assert any("'v00' is in shard" in damage.what for damage in verify_store(path))


def test_captions_that_are_not_what_the_index_says_are_found(path):
    file = only(path, "captions/*.jsonl.gz")
    lines = gzip.decompress(file.read_bytes()).replace(b"WEBVTT", b"WEBVTX")
    accept(path, file, gzip.compress(lines))
    assert names(path) == [file.relative_to(path).as_posix()]


def set_file(path, name):
    return only(path, f"manifests/*/{name}")


def test_twins_that_disagree_are_found(path):
    file = set_file(path, "tokens.npy")
    accept(path, file, npy_bytes(np.array([5, 6, 8], np.int32)))
    (damage,) = verify_store(path)
    assert (damage.path, damage.what) == (
        file.relative_to(path).as_posix(),
        "caption 0 has other token ids than captions.csv",
    )


@pytest.mark.parametrize("offsets", [[0, 3, 2], [1, 3, 3], [0, 2, 3]])
def test_offsets_that_are_wrong_are_found(path, offsets):
    accept(path, set_file(path, "offsets.npy"), npy_bytes(np.array(offsets, np.int64)))
    assert names(path) != []


@pytest.mark.parametrize(
    ("file", "old", "new", "what"),
    [
        ("captions.csv", b"5 6 7", b"5 6", "other token ids"),
        ("captions.csv", b"v00,1.25", b"v00,1,2,x,\nv00,1.25", "captions"),
        ("windows-train.csv", b"0,3,0 1", b"3,3,0 1", "has rows that its video does not have"),
        ("windows-train.csv", b"0,3,0 1", b"-1,3,0 1", "has rows that its video does not have"),
        ("windows-train.csv", b"0,3,0 1", b"0,0,0 1", "has rows that its video does not have"),
        ("windows-train.csv", b"0,3,0 1", b"0,3,0 2", "has a caption that the set does not have"),
        ("windows-train.csv", b"0,3,0 1", b"0,3,-1", "has a caption that the set does not have"),
        ("windows-train.csv", b"0,3,0 1\n", b"0,3,0 1\nv00,0,1,0,1,0\n", "holds 2 rows, manifest.json says 1"),
        ("windows-train.csv", b"v00", b"v09", "cannot be read"),
        ("videos.csv", b"v00,train,5,5,2,1\n", b"v00,train,5,5,2,1\nv00,train,5,5,2,1\n", "names a video twice"),
        ("failures.csv", b"x0", b'x"0', ""),
    ],
)
def test_tables_that_do_not_fit_are_found(path, file, old, new, what):
    target = set_file(path, file)
    data = target.read_bytes()
    assert old in data
    accept(path, target, data.replace(old, new))
    found = verify_store(path)
    if what:
        assert any(what in damage.what for damage in found), found
    else:
        assert found == [], "a quote inside a field is text"


def test_a_window_of_a_video_that_the_stream_does_not_have_is_found(path):
    """Not to be measured against the last video, which is where -1 points in NumPy."""
    for name in ("videos.csv", "windows-train.csv", "captions.csv"):
        file = set_file(path, name)
        accept(path, file, file.read_bytes().replace(b"v00", b"v99"))
    assert any("has rows that its video does not have" in damage.what for damage in verify_store(path))


def test_more_or_fewer_windows_than_the_set_says_are_found(path):
    file = set_file(path, "manifest.json")
    info = json.loads(file.read_bytes())
    accept(path, file, canonical_json(info | {"splits": {"train": 2}}))
    assert any("says 2 windows of split 'train', its parts hold 1" in damage.what for damage in verify_store(path))


def test_a_set_of_an_older_stream_is_no_damage(path):
    streams = open_store(path).root.streams
    for index in path.glob("features/default/*.json"):
        accept(path, index, canonical_json(json.loads(index.read_bytes()) | {"fingerprint": "cd"}))
    streams = {"default": streams["default"].model_copy(update={"fingerprint": "cd"})}
    edit_root(path, streams=streams)
    assert names(path) == []


def test_a_run_record_that_is_a_folder_or_a_link_to_nothing_is_told(path):
    (path / "runs" / "folder.json").mkdir(parents=True)
    (path / "runs" / "link.json").symlink_to(path / "nowhere")
    assert [damage.path for damage in verify_store(path)] == ["runs/folder.json", "runs/link.json"]
