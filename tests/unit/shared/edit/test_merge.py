"""Merging: every video once, conflicts by name, order of nothing but the order of the stores."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from shared.captions import read_captions
from shared.edit.merge import merge_stores
from shared.edit.remove import remove_videos
from shared.edit.subset import subset_store
from shared.errors import RequestError, StoreError
from shared.store import open_store, open_writer
from shared.verify import verify_store


@pytest.fixture(scope="module")
def other(editing, memory):
    """Shares `a` and `d` with `built`, in shards of other neighbours."""
    return editing.build(memory / "other", ["d", "new1", "a", "x2"])


def test_all_videos_once(editing, built, other, tmp_path):
    made = merge_stores(tmp_path / "new", [built, other])
    assert (made.videos, made.dropped) == (11, ())
    assert verify_store(tmp_path / "new") == []
    new = open_store(tmp_path / "new")
    for name in new.root.streams:
        stream = new.stream(name)
        assert stream.video_ids == ["a", "bb", "ccc", "d", "ee", "fff", "g", "h", "new1"]
        assert [video_id for video_id, _ in stream.failures] == ["x1", "x2"]
        for number, video_id in enumerate(stream.video_ids):
            np.testing.assert_array_equal(stream.read(number), editing.rows(name, video_id))
    ids = [video.video_id for video in read_captions(new)]
    assert sorted(ids) == ["a", "bb", "ccc", "d", "ee", "fff", "g", "h", "new1", "x1", "x2"]
    manifest = new.manifest_set("words")
    assert manifest.video_ids == ["a", "bb", "ccc", "d", "ee", "fff", "g", "h", "new1"]
    assert [row["video_id"] for row in manifest.failures] == ["x1", "x2"]
    windows = manifest.windows("train")
    last = windows.candidates_of(len(windows) - 1)
    assert [manifest.caption_texts[c] for c in last] == [editing.text("new1", k) for k in (1, 0)]


def test_the_parts_of_a_store_merge_to_its_content(editing, built, tmp_path):
    subset_store(built, tmp_path / "one", ["a", "bb", "x1", "ccc"])
    subset_store(built, tmp_path / "two", ["d", "ee", "fff", "g", "h"])
    merge_stores(tmp_path / "new", [tmp_path / "one", tmp_path / "two"])
    old, new = editing.content(built), editing.content(tmp_path / "new")
    assert {p: d for p, d in new.items() if p.startswith(("features", "frames", "captions"))} == {
        p: d for p, d in old.items() if p.startswith(("features", "frames", "captions"))
    }
    tables = [{p.rpartition("/")[2]: d for p, d in c.items() if p.endswith((".csv", "s.npy"))} for c in (old, new)]
    assert tables[0].items() <= tables[1].items()


def test_same_stores_same_bytes(editing, built, other, tmp_path):
    for name in ("one", "two"):
        merge_stores(tmp_path / name, [built, other])
    assert editing.content(tmp_path / "one") == editing.content(tmp_path / "two")


def test_rows_are_preferred_to_a_failure(editing, tmp_path):
    first, second = (editing.build(tmp_path / name, ["a", "bb"]) for name in ("first", "second"))
    with open_writer(first) as writer:
        entry = writer.root.streams["default"]
        shard = editing.shard(writer.scratch, "default", 0, ["bb"])
        from shared.errors import Failure
        from shared.schema import Source
        from shared.shard_writer import ShardWriter

        with ShardWriter(writer.scratch, "default", entry, "77", 0) as rows:
            rows.fail_video("a", Failure("timeout", "decode", "-"), Source(bytes=1, xxh3="ab"))
            failed = rows.finish()
        entry = entry.model_copy(update={"shards": (shard.ref, failed.ref)})
        writer.commit([*shard.files, *failed.files], streams=writer.root.streams | {"default": entry}, sets={})
    for number, order in enumerate(([first, second], [second, first])):
        merge_stores(tmp_path / str(number), order)
        stream = open_store(tmp_path / str(number)).stream("default")
        assert (stream.video_ids, stream.failures) == (["a", "bb"], [])


def test_conflicts_are_listed_and_nothing_is_made(editing, built, tmp_path):
    another = editing.build(tmp_path / "another", ["a", "new", "g"], source="cd")
    with pytest.raises(StoreError, match=r"'a': another media file in .*another") as caught:
        merge_stores(tmp_path / "new", [built, another])
    assert "'g'" in str(caught.value)
    assert "'new'" not in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_other_captions_are_a_conflict(editing, built, store, tmp_path):
    with open_writer(store) as writer:
        from shared.captions import KeptCaptions, write_caption_shard

        shard = write_caption_shard(writer.scratch, 0, [KeptCaptions("bb", "val", {}, ())])
        writer.commit(shard.files, captions=(shard.ref,))
    with pytest.raises(StoreError, match="'bb': other captions, split or attributes"):
        merge_stores(tmp_path / "new", [built, store])


def test_a_takedown_in_one_of_them_is_a_conflict(built, store, tmp_path):
    with open_writer(store) as writer:
        remove_videos(writer, ["ccc"])
    for order in ([built, store], [store, built]):
        with pytest.raises(StoreError, match=r"'ccc': removed from .* but not from"):
            merge_stores(tmp_path / "new", order)
    with open_writer(shutil.copytree(built, tmp_path / "same")) as writer:
        remove_videos(writer, ["ccc"])
    merge_stores(tmp_path / "new", [store, tmp_path / "same"])
    assert verify_store(tmp_path / "new") == []


def test_other_streams_are_refused_by_name(editing, built, store, tmp_path):
    with open_writer(store) as writer:
        streams = {name: entry for name, entry in writer.root.streams.items() if name != "wide"}
        streams["default"] = editing.entry("default", fingerprint="12")
        writer.commit([], streams=streams)
    with pytest.raises(StoreError, match=r"fingerprint 0007 in .*, 12 in") as caught:
        merge_stores(tmp_path / "new", [built, store])
    assert f"{store} has no stream 'wide'" in str(caught.value)
    assert "thumbs" not in str(caught.value)


def test_sets_that_differ_are_left_out_by_name(editing, built, tmp_path):
    another = editing.build(tmp_path / "another", ["new"], config="b")
    made = merge_stores(tmp_path / "new", [built, another])
    assert made.dropped == (("words", "the stores made it with other settings"),)
    with open_writer(another) as writer:
        writer.commit([], sets={})
    made = merge_stores(tmp_path / "newer", [built, another])
    assert made.dropped == (("words", f"{another} does not have it"),)


def test_two_stores_at_least(built, tmp_path):
    with pytest.raises(RequestError, match="two stores or more, got 1"):
        merge_stores(tmp_path / "new", [built])
    with pytest.raises(RequestError, match="named twice"):
        merge_stores(tmp_path / "new", [built, built.parent / "." / built.name])
