"""Compacting changes where rows stand and nothing that a reader gets."""

from __future__ import annotations

import numpy as np
import pytest

from shared.captions import read_captions
from shared.edit import compact as module
from shared.edit.compact import compact
from shared.edit.remove import remove_videos
from shared.store import open_store, open_writer
from shared.verify import verify_store


def run(store, notes=None):
    with open_writer(store) as writer:
        return compact(writer, notes.append if notes is not None else lambda _: None)


def read_all(store):
    opened = open_store(store)
    found = {}
    for name in opened.root.streams:
        stream = opened.stream(name)
        found[name] = (
            [
                (
                    video_id,
                    stream.read(n).tobytes(),
                    stream.spans(n).tolist(),
                    stream.valid(n).tolist(),
                    stream.record(n).source,
                )
                for n, video_id in enumerate(stream.video_ids)
            ],
            stream.failures,
        )
    manifest = opened.manifest_set("words")
    windows = {split: manifest.windows(split).candidates.tolist() for split in manifest.splits}
    return found, list(read_captions(opened)), windows


def test_one_shard_is_left_of_each_and_readers_see_the_same(store):
    before, notes = read_all(store), []
    done = run(store, notes)
    assert (done.before, done.after) == (3 * 5 + 3, 4)
    assert len(notes) == 4
    assert read_all(store) == before
    assert verify_store(store) == []


def test_again_changes_nothing(editing, store):
    run(store)
    before = editing.content(store)
    assert run(store) == module.Compacted(4, 4)
    assert editing.content(store) == before


@pytest.mark.parametrize("limit", [1, 3, 4, 5])
def test_shards_grow_to_the_limit_and_not_beyond(store, monkeypatch, limit):
    monkeypatch.setattr(module, "SHARD_VIDEOS", limit)
    before = read_all(store)
    run(store)
    assert read_all(store) == before
    root = open_store(store).root
    sizes = [ref.videos + ref.failed for ref in root.streams["default"].shards]
    assert sizes == {1: [2, 2, 2, 2, 1], 3: [2, 2, 2, 3], 4: [4, 4, 1], 5: [4, 5]}[limit]
    assert verify_store(store) == []


def test_after_removals(editing, store):
    with open_writer(store) as writer:
        remove_videos(writer, ["ccc", "a", "x1"])
    before = read_all(store)
    run(store)
    assert read_all(store) == before
    for video_id in ("ccc", "a", "x1"):
        assert editing.traces(store, video_id) == []


def test_damage_stops_it_with_the_store_as_it_was(store):
    path = sorted((store / "features" / "default").glob("?????-????????????.npy"))[1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    before = (store / "store.json").read_bytes()
    with pytest.raises(Exception, match=path.name) as caught:
        run(store)
    assert type(caught.value).__name__ == "DamageFound"
    assert (store / "store.json").read_bytes() == before


def test_scratch_of_killed_writers_goes(store):
    (store / ".tmp").mkdir()
    (store / ".tmp" / "default-00000-ab.npy").write_bytes(np.arange(9).tobytes())
    run(store)
    assert not (store / ".tmp").exists()
