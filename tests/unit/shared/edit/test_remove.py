"""Takedowns: nothing is left but the id, everything else is what it was."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from shared.atomic import replace_file
from shared.captions import read_captions
from shared.edit.ids import given_ids, read_ids, removed_ids
from shared.edit.remove import remove_videos, restore_videos
from shared.errors import InputFileError, RequestError, StoreError
from shared.fingerprint import hash_bytes
from shared.schema import FileEntry
from shared.store import open_store, open_writer
from shared.verify import verify_store


def remove(store, *ids):
    with open_writer(store) as writer:
        return remove_videos(writer, ids)


def restore(store, *ids):
    with open_writer(store) as writer:
        return restore_videos(writer, ids)


def test_the_search_finds_what_is_there(editing, store):
    found = editing.traces(store, "ccc")
    assert {path.partition("/")[0] for path in found} == {"features", "frames", "captions", "manifests"}
    assert sum(path.endswith(".h5") for path in found) == 1


@pytest.mark.parametrize("ids", [["ccc"], ["a", "h"], ["x1", "d"]])
def test_nothing_of_a_removed_video_is_left_but_its_id(editing, store, ids):
    assert remove(store, *ids).removed == tuple(sorted(ids))
    assert verify_store(store) == []
    for video_id in ids:
        assert editing.traces(store, video_id) == []
    opened = open_store(store)
    assert removed_ids(opened) == set(ids)
    for name in opened.root.streams:
        stream = opened.stream(name)
        assert not set(ids) & ({*stream.video_ids} | {video_id for video_id, _ in stream.failures})
    manifest = opened.manifest_set("words")
    assert not set(ids) & ({*manifest.video_ids} | {row["video_id"] for row in manifest.failures})


def test_the_others_stay_as_they_were(editing, store, built):
    remove(store, "ccc", "x1")
    before, after = open_store(built), open_store(store)
    for name in before.root.streams:
        old, new = before.stream(name), after.stream(name)
        assert new.video_ids == [video_id for video_id in old.video_ids if video_id != "ccc"]
        for number, video_id in enumerate(new.video_ids):
            there = old.video_ids.index(video_id)
            np.testing.assert_array_equal(new.read(number), old.read(there))
            np.testing.assert_array_equal(new.spans(number), old.spans(there))
            np.testing.assert_array_equal(new.valid(number), old.valid(there))
            assert new.record(number).source == old.record(there).source
    kept = {video.video_id: video for video in read_captions(after)}
    assert all(kept[video.video_id] == video for video in read_captions(before) if video.video_id not in ("ccc", "x1"))
    old_set, new_set = before.manifest_set("words"), after.manifest_set("words")
    for split in old_set.splits:
        assert described(new_set, split) == [item for item in described(old_set, split) if item[0] != "ccc"]


def described(manifest, split):
    windows = manifest.windows(split)
    return [
        (
            manifest.video_ids[windows.video_W[w]],
            windows.start_W[w],
            windows.first_row_W[w],
            [(manifest.caption_texts[c], manifest.caption_tokens(c).tolist()) for c in windows.candidates_of(w)],
        )
        for w in range(len(windows))
    ]


def test_files_without_the_video_are_not_touched(store, built):
    remove(store, "ccc")
    old, new = open_store(built).root, open_store(store).root
    for name, entry in old.streams.items():
        assert sum(ref not in new.streams[name].shards for ref in entry.shards) == 1


def test_unknown_ids_are_refused_by_name_and_nothing_happens(editing, store):
    before = editing.content(store)
    with pytest.raises(StoreError, match="no video 'nobody', 'cc': nothing was changed"):
        remove(store, "a", "nobody", "cc")
    assert editing.content(store) == before


def test_twice_is_once(editing, store):
    remove(store, "ccc")
    before = editing.content(store)
    assert remove(store, "ccc").removed == ()
    assert editing.content(store) == before
    assert remove(store, "ccc", "d").removed == ("d",)


def test_same_request_same_bytes(editing, built, tmp_path):
    made = []
    for name in ("one", "two"):
        shutil.copytree(built, tmp_path / name)
        remove(tmp_path / name, *(("d", "ccc") if name == "one" else ("ccc", "d")))
        made.append(editing.content(tmp_path / name))
    assert made[0] == made[1]


def test_a_video_without_captions_gets_its_tombstone(editing, store):
    with open_writer(store) as writer:
        writer.commit([], captions=writer.root.captions[:1])
    remove(store, "h")
    assert removed_ids(open_store(store)) == {"h"}
    assert verify_store(store) == []
    assert editing.traces(store, "h") == []


def test_a_stream_that_is_being_made_again_loses_it_too(editing, store):
    with open_writer(store) as writer:
        shard = editing.shard(writer.scratch, "wide", 7, ["ccc", "d"])
        entry = editing.entry("wide", fingerprint="99")
        writer.commit(shard.files, pending={"wide": entry.model_copy(update={"shards": (shard.ref,)})})
    remove(store, "ccc")
    assert editing.traces(store, "ccc") == []
    assert [ref.videos for ref in open_store(store).root.pending["wide"].shards] == [1]


def test_restored_ids_are_new_again(store):
    remove(store, "ccc", "d")
    with pytest.raises(StoreError, match="'a' was not removed"):
        restore(store, "d", "a")
    assert restore(store, "d") == ("d",)
    assert removed_ids(open_store(store)) == {"ccc"}
    assert "d" not in {video.video_id for video in read_captions(open_store(store))}
    assert verify_store(store) == []


def test_a_set_of_another_stream_version_is_dropped_by_name(editing, store):
    with open_writer(store) as writer:
        entry = editing.entry("default", fingerprint="77")
        writer.commit([], streams=writer.root.streams | {"default": entry})
    removal = remove(store, "ccc")
    assert removal.dropped == (("words", "it was cut for another version of its stream"),)
    assert open_store(store).root.sets == {}
    assert editing.traces(store, "ccc") == []
    assert verify_store(store) == []


def test_ids_come_from_arguments_or_a_file(tmp_path):
    file = tmp_path / "ids.txt"
    file.write_bytes("\ufeff-a\r\n\nkü che\n-a\n".encode())
    assert given_ids(None, file) == ["-a", "kü che"]
    assert given_ids(["b", "a", "b"], None) == ["b", "a"]
    for listed, path in (([], None), (["a"], file)):
        with pytest.raises(RequestError, match="one of both"):
            given_ids(listed, path)
    for content, message in ((b"\n \n", "holds none"), (b"\xff", "cannot be read")):
        file.write_bytes(content)
        with pytest.raises(InputFileError, match=message):
            read_ids(file)
    with pytest.raises(InputFileError, match="does not exist"):
        read_ids(tmp_path / "none")
    with pytest.raises(InputFileError, match="cannot be read"):
        read_ids(tmp_path)


def test_a_set_with_a_file_that_nobody_here_knows_is_dropped_by_name(editing, store):
    """It might tell of the removed video, and no longer fit."""
    with open_writer(store) as writer:
        (folder,) = (store / "manifests").iterdir()
        path = f"manifests/{folder.name}/vectors.npy"
        (store / path).write_bytes(b"x")
        files = writer.root.files | {path: FileEntry(bytes=1, xxh3=hash_bytes(b"x"))}
        root = writer.root.model_copy(update={"files": dict(sorted(files.items()))})
        replace_file(store / "store.json", root.to_bytes())
    removal = remove(store, "ccc")
    assert removal.dropped == (("words", f"it has a file that cannot be edited, {path}"),)
    assert not (store / "manifests").exists()
    assert verify_store(store) == []
