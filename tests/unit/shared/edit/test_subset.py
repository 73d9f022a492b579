"""A subset is what was chosen, checked on the way, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from shared.captions import read_captions
from shared.edit.ids import removed_ids
from shared.edit.remove import remove_videos
from shared.edit.subset import ids_of_split, subset_store
from shared.errors import RequestError, StoreError
from shared.schema import Root
from shared.store import open_store, open_writer
from shared.verify import verify_store


def test_it_has_the_chosen_videos_and_no_byte_of_others(editing, built, tmp_path):
    made = subset_store(built, tmp_path / "new", ["ccc", "x1", "a"])
    assert (made.videos, made.dropped) == (3, ())
    assert verify_store(tmp_path / "new") == []
    new, old = open_store(tmp_path / "new"), open_store(built)
    for name in old.root.streams:
        stream, whole = new.stream(name), old.stream(name)
        assert stream.video_ids == ["a", "ccc"]
        assert [video_id for video_id, _ in stream.failures] == ["x1"]
        for number, video_id in enumerate(stream.video_ids):
            np.testing.assert_array_equal(stream.read(number), whole.read(whole.video_ids.index(video_id)))
    assert [video.video_id for video in read_captions(new)] == ["a", "x1", "ccc"]
    assert new.manifest_set("words").video_ids == ["a", "ccc"]
    for video_id in ("bb", "d", "ee", "fff", "g", "h"):
        assert editing.traces(tmp_path / "new", video_id) == []


def test_shards_that_are_wanted_whole_are_copied_as_they_are(editing, built, tmp_path):
    subset_store(built, tmp_path / "new", ["a", "bb", "d"])
    new, old = editing.content(tmp_path / "new"), editing.content(built)
    rows = [path for path in new if path.startswith("features/default/") and path.endswith(".npy")]
    assert sum(path in old and new[path] == old[path] for path in rows) >= 1
    assert (
        open_store(built).root.streams["default"].shards[0]
        in open_store(tmp_path / "new").root.streams["default"].shards
    )


def test_all_of_a_store_is_the_store(editing, built, tmp_path):
    every = sorted({video.video_id for video in read_captions(open_store(built))})
    subset_store(built, tmp_path / "new", every)
    old, new = editing.content(built), editing.content(tmp_path / "new")
    same = {path for path in old if not path.startswith(("manifests/", "store.json"))}
    assert {path: new[path] for path in same} == {path: old[path] for path in same}
    tables = {path.rpartition("/")[2]: data for path, data in old.items() if path.endswith(".csv")}
    assert {path.rpartition("/")[2]: data for path, data in new.items() if path.endswith(".csv")} == tables


def test_a_split_of_a_set(built):
    store = open_store(built)
    assert ids_of_split(store, "words", "val") == ["ee", "h"]
    with pytest.raises(StoreError, match="no video of split 'test'; its splits: train, val"):
        ids_of_split(store, "words", "test")


def test_unknown_ids_and_used_targets_are_refused(editing, built, store, tmp_path):
    with pytest.raises(StoreError, match="no video 'nobody'"):
        subset_store(built, tmp_path / "new", ["a", "nobody"])
    assert not (tmp_path / "new").exists()
    before = editing.content(store)
    with pytest.raises(StoreError, match="is a store already"):
        subset_store(built, store, ["a"])
    with pytest.raises(RequestError, match="inside the store"):
        subset_store(built, store / "new", ["a"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match="not empty"):
        subset_store(built, tmp_path / "full", ["a"])
    assert editing.content(store) == before


def test_what_a_killed_subset_left_is_made_anew(editing, built, tmp_path):
    with open_writer(tmp_path / "new") as writer:
        assert writer.root == Root()
        shard = editing.shard(writer.scratch, "default", 0, ["a", "bb"])
        writer._move(shard.files)
    subset_store(built, tmp_path / "new", ["g"])
    subset_store(built, tmp_path / "other", ["g"])
    assert editing.content(tmp_path / "new") == editing.content(tmp_path / "other")
    assert verify_store(tmp_path / "new") == []


def test_takedowns_hold_in_the_subset(store, tmp_path):
    with open_writer(store) as writer:
        remove_videos(writer, ["ccc"])
    with pytest.raises(StoreError, match="no video 'ccc'"):
        subset_store(store, tmp_path / "new", ["ccc", "d"])
    subset_store(store, tmp_path / "new", ["d"])
    assert removed_ids(open_store(tmp_path / "new")) == {"ccc"}


@pytest.mark.parametrize("suffix", [".npy", ".h5", ".json", ".jsonl.gz"])
def test_damage_does_not_travel(store, tmp_path, suffix):
    name = "captions" if suffix == ".jsonl.gz" else "features"
    path = sorted(path for path in (store / name).rglob("*") if path.name.endswith(suffix))[0]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for ids in (["a"], ["a", "bb", "x1", "ccc"]):
        with pytest.raises(Exception, match=path.stem.partition(".")[0]) as caught:
            subset_store(store, tmp_path / f"new{len(ids)}", ids)
        assert type(caught.value).__name__ in ("DamageFound", "StoreError")
