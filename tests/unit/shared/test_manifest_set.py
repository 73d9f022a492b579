"""Reading manifest sets."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import DamageFound, StoreError
from shared.manifest_set import ManifestSet
from shared.manifest_writer import ManifestSetWriter
from shared.store import open_store, open_writer

LENGTHS = [3, 0, 5, 1, 0, 7]


@pytest.fixture(scope="module")
def path(tmp_path_factory, samples):
    path = samples.store(tmp_path_factory.mktemp("sets") / "s")
    with open_writer(path) as writer:
        manifest = ManifestSetWriter(writer.scratch / "many")
        ids = [np.arange(10 * n + 1, 10 * n + 1 + length, dtype=np.int32) for n, length in enumerate(LENGTHS)]
        manifest.add_captions("v00", range(6), range(1, 7), [f"é {n}, \r\n" for n in range(6)], ids)
        manifest.add_window("train", "v00", 0.5, 2.5, 1, 2, [2, 0])
        manifest.add_window("train", "v00", 2.5, 4.5, 3, 2, [])
        manifest.add_video("v00", "train", 5.0, 5)
        manifest.add_window("test", "v11", 0, 6, 0, 6, [5])
        manifest.add_video("v11", "test", 6.0, 6)
        facts = {"name": "many", "stream": "default", "stream_fingerprint": "ab", "config": {}, "report": {}}
        writer.commit_set(*manifest.finish(tokenizer={"pad_id": 9}, **facts))
    return path


@pytest.fixture
def manifest(path):
    return open_store(path).manifest_set("many")


def test_tables(manifest):
    assert (manifest.name, manifest.splits, manifest.pad_id) == ("many", ["test", "train"], 9)
    assert manifest.video_ids == ["v00", "v11"]
    assert manifest.caption_texts[4] == "é 4, \r\n"
    assert manifest.failures == []
    windows = manifest.windows("train")
    assert len(windows) == 2
    assert (windows.video_W.tolist(), windows.first_row_W.tolist(), windows.rows_W.tolist()) == ([0, 0], [1, 3], [2, 2])
    assert (windows.start_W.tolist(), windows.end_W.tolist()) == ([0.5, 2.5], [2.5, 4.5])
    assert [windows.candidates_of(w).tolist() for w in range(2)] == [[2, 0], []]
    assert manifest.windows("test").video_W.tolist() == [1]


def test_an_unknown_split_names_the_known(manifest):
    with pytest.raises(StoreError, match=r"no windows of split 'val'; it has test, train"):
        manifest.windows("val")


def test_tokens_of_each_caption(manifest):
    for number, length in enumerate(LENGTHS):
        assert manifest.caption_tokens(number).tolist() == list(range(10 * number + 1, 10 * number + 1 + length))


@settings(max_examples=100, deadline=None)
@given(captions=st.lists(st.lists(st.integers(-1, 5), min_size=3, max_size=3), max_size=5), length=st.integers(0, 9))
def test_token_batches_equal_a_naive_loop(path, captions, length):
    manifest = open_store(path).manifest_set("many")
    captions_BK = np.array(captions, np.int64).reshape(-1, 3)
    ids_BKL, mask_BKL = manifest.tokens(captions_BK, length)
    expected, mask = np.full((len(captions), 3, length), 9, np.int32), np.zeros((len(captions), 3, length), bool)
    for b, bag in enumerate(captions):
        for k, caption in enumerate(bag):
            ids = manifest.caption_tokens(caption)[:length] if caption >= 0 else []
            expected[b, k, : len(ids)], mask[b, k, : len(ids)] = ids, True
    np.testing.assert_array_equal(ids_BKL, expected)
    np.testing.assert_array_equal(mask_BKL, mask)
    given = np.full_like(ids_BKL, -1), np.ones_like(mask_BKL)
    assert manifest.tokens(captions_BK, length, out=given) == given
    np.testing.assert_array_equal(given[0], expected)
    np.testing.assert_array_equal(given[1], mask)


def test_a_set_pickles_small_and_opens_again(manifest):
    manifest.tokens(np.array([[0]]), 2)
    assert len(manifest.videos) == 2
    data = pickle.dumps(manifest)
    assert len(data) < 4096
    assert pickle.loads(data).tokens(np.array([[0]]), 2)[0].tolist() == [[[1, 2]]]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("windows-train.csv", b"first_row", b"first_raw", "has columns"),
        ("windows-train.csv", b",2,2 0", b",2", "fields, expected 6"),
        ("windows-train.csv", b",2,2 0", b",2,2 0,1", "fields, expected 6"),
        ("windows-train.csv", b",2,2 0", b",2,2 x", "cannot be read"),
        ("windows-train.csv", b"v00", b"v99", "cannot be read"),
        ("windows-train.csv", b"v00", b"\xff00", "cannot be read"),
        ("windows-train.csv", b"v00", b'v"0', "v"),
        ("videos.csv", b"v11", b'"v1', "cannot be read"),
    ],
)
def test_a_table_that_cannot_be_read_is_damage(path, manifest, file, old, new, message):
    target = manifest.path / file
    data = target.read_bytes()
    assert old in data
    target.write_bytes(data.replace(old, new))
    unchecked = ManifestSet(path, manifest.path.relative_to(path).as_posix())
    try:
        with pytest.raises(DamageFound, match=message):
            unchecked.windows("train")
    finally:
        target.write_bytes(data)


def test_more_than_the_csv_modules_limit_in_one_field(tmp_path, samples):
    text = "long " * 40_000
    with open_writer(tmp_path / "s") as writer:
        manifest = samples.manifest(writer.scratch / "set", texts=(text, ""))
        facts = {"name": "long", "stream": "default", "stream_fingerprint": "ab", "config": {}, "report": {}}
        info, files = manifest.finish(tokenizer={"pad_id": 0}, **facts)
        writer.commit(samples.shard(writer.scratch, samples.entry()).files, streams={"default": samples.entry()})
        writer.commit_set(info, files)
        assert writer.store.manifest_set("long").caption_texts == [text, ""]


@pytest.mark.parametrize("file", ["tokens.npy", "offsets.npy"])
def test_a_cut_twin_is_damage(tmp_path, samples, file):
    manifest = open_store(samples.store(tmp_path / "s")).manifest_set("default")
    twin = manifest.path / file
    twin.write_bytes(twin.read_bytes()[:-1])
    with pytest.raises(DamageFound, match=file):
        manifest.caption_tokens(0)


def test_a_bad_manifest_json_is_damage(tmp_path, samples):
    store = open_store(samples.store(tmp_path / "s"))
    file = store.path / store.root.sets["default"].path / "manifest.json"
    file.write_text("{}")
    with pytest.raises(DamageFound, match=r"manifest\.json is damaged: holds 2 bytes"):
        store.manifest_set("default")
    with pytest.raises(DamageFound, match=r"is not a manifest: name: Field required \(and .* more\); run") as caught:
        ManifestSet(store.path, store.root.sets["default"].path)
    assert "\n" not in str(caught.value)
    assert "pydantic" not in str(caught.value)
    file.unlink()
    with pytest.raises(DamageFound, match="is missing"):
        store.manifest_set("default")


USES = {
    "manifest.json": lambda store: store.manifest_set("default"),
    "videos.csv": lambda store: store.manifest_set("default").video_ids,
    "captions.csv": lambda store: store.manifest_set("default").caption_texts,
    "windows-train.csv": lambda store: store.manifest_set("default").windows("train"),
    "failures.csv": lambda store: store.manifest_set("default").failures,
    "tokens.npy": lambda store: store.manifest_set("default").caption_tokens(0),
    "offsets.npy": lambda store: store.manifest_set("default").token_offsets,
}


@pytest.mark.parametrize("file", USES)
def test_a_flipped_bit_that_parses_is_damage(tmp_path, samples, file):
    store = open_store(samples.store(tmp_path / "s"))
    target = store.path / store.root.sets["default"].path / file
    data = bytearray(target.read_bytes())
    place = max(number for number, byte in enumerate(data) if file.endswith(".npy") or chr(byte).isdigit())
    data[place] ^= 1
    target.write_bytes(data)
    with pytest.raises(DamageFound, match=rf"{file} is damaged: content changed.*run `verify`"):
        USES[file](store)


def test_files_are_checked_once_and_not_again_elsewhere(tmp_path, samples, monkeypatch):
    store = open_store(samples.store(tmp_path / "s"))
    manifest = store.manifest_set("default")
    assert manifest.caption_tokens(0).tolist() == [5, 6, 7]

    def unwanted(path):
        pytest.fail(f"{path} is read for its hash again")

    monkeypatch.setattr("shared.checks.hash_file", unwanted)
    assert pickle.loads(pickle.dumps(manifest)).caption_tokens(0).tolist() == [5, 6, 7]
    assert store.manifest_set("default").caption_tokens(0).tolist() == [5, 6, 7]


def test_a_file_that_the_root_does_not_name_is_damage(tmp_path, samples):
    store = open_store(samples.store(tmp_path / "s"))
    store.root.files.pop(f"{store.root.sets['default'].path}/videos.csv")
    with pytest.raises(DamageFound, match=r"videos\.csv is damaged: the root does not name it"):
        assert store.manifest_set("default").videos
