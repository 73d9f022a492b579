"""Opening and changing a store: commits are whole or not at all, nothing is deleted that is not ours."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from shared.errors import DamageFound, RequestError, StoppedEarly, StoreError
from shared.fingerprint import sealed_json
from shared.schema import Root
from shared.store import list_files, open_store, open_writer, refuse_inside_store
from shared.verify import verify_store

BOTH = pytest.mark.parametrize("container", ["npy", "h5"])


def content(path: Path) -> dict[str, bytes]:
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def with_shards(entry, *shards):
    return {"default": entry.model_copy(update={"shards": tuple(shard.ref for shard in shards)})}


@BOTH
def test_a_store_holds_what_its_root_names_and_nothing_else(tmp_path, samples, container):
    path = samples.store(tmp_path / "s", container)
    root = open_store(path).root
    assert set(content(path)) == {"store.json", *root.files}
    assert list_files(path) == sorted(root.files)
    assert verify_store(path) == []


@BOTH
def test_the_same_work_gives_the_same_bytes(tmp_path, samples, container):
    assert content(samples.store(tmp_path / "a", container)) == content(samples.store(tmp_path / "b", container))


def test_the_order_in_which_units_were_done_does_not_show(tmp_path, samples):
    stores = []
    for order in ([0, 1, 2], [2, 0, 1]):
        path = tmp_path / "".join(map(str, order))
        with open_writer(path) as writer:
            entry = samples.entry()
            for unit in order:
                shard = samples.shard(writer.scratch, entry, unit)
                shards = (*writer.root.streams.get("default", entry).shards, shard.ref)
                writer.commit(shard.files, streams={"default": entry.model_copy(update={"shards": shards})})
        stores.append(content(path))
    assert stores[0] == stores[1]


def test_readers_see_the_old_store_until_the_root_is_replaced(tmp_path, samples, monkeypatch):
    path = samples.store(tmp_path / "s", units=1)
    before = open_store(path).root
    seen = []
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda *names: (seen.append(open_store(path).root), real(*names)))
    with open_writer(path) as writer:
        entry = samples.entry()
        shards = [samples.shard(writer.scratch, entry, unit) for unit in (0, 1)]
        writer.commit([file for shard in shards for file in shard.files], streams=with_shards(entry, *shards))
    assert len(seen) >= 5, "four files and the root"
    assert set(map(Root.to_bytes, seen)) == {before.to_bytes()}
    assert len(open_store(path).root.streams["default"].shards) == 2


def test_what_a_new_root_does_not_need_is_deleted_after_it(tmp_path, samples):
    path = samples.store(tmp_path / "s")
    with open_writer(path) as writer:
        samples.commit_set(writer, config={"window": 3})
        writer.commit([], captions=())
        entry = writer.root.streams["default"]
        shards = entry.shards[:1]
        writer.commit([], streams={"default": entry.model_copy(update={"shards": shards})})
    assert verify_store(path) == []
    assert {file.partition("-")[0] for file in list_files(path)} == {"features/default/00000", "manifests/default"}
    assert not (path / "captions").exists(), "an emptied folder goes, too"


def test_pending_streams_keep_their_files_and_stay_hidden(tmp_path, samples):
    path = tmp_path / "s"
    with open_writer(path) as writer:
        entry = samples.entry()
        shard = samples.shard(writer.scratch, entry)
        writer.commit(shard.files, pending=with_shards(entry, shard))
        with pytest.raises(StoreError, match="no stream 'default'; it has none"):
            writer.store.stream("default")
        assert verify_store(path) == []
        writer.commit([], streams=writer.root.pending, pending={})
        assert writer.store.stream("default").video_ids == ["v00", "v01", "v02"]


def test_a_set_is_refused_after_its_stream_has_changed(tmp_path, samples):
    path = samples.store(tmp_path / "s")
    with open_writer(path) as writer:
        entry = writer.root.streams["default"]
        writer.commit([], streams={"default": entry.model_copy(update={"fingerprint": "cd"})})
    with pytest.raises(StoreError, match=r"cut for another version of stream 'default': make it again with"):
        open_store(path).manifest_set("default")


def test_missing_names_come_with_those_that_exist(tmp_path, samples):
    store = open_store(samples.store(tmp_path / "s"))
    with pytest.raises(StoreError, match="no stream 'clips'; it has default"):
        store.stream("clips")
    with pytest.raises(StoreError, match="no manifest set 'words'; it has default"):
        store.manifest_set("words")


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_text("")])
def test_what_is_no_store_is_refused(tmp_path, make):
    make(tmp_path / "s")
    with pytest.raises(StoreError, match=r"is no store: it has no store\.json"):
        open_store(tmp_path / "s")


def test_a_name_longer_than_a_file_name_may_be_is_refused(tmp_path):
    with pytest.raises(StoreError, match="cannot be read"):
        open_store(tmp_path / ("s" * 300))


def test_a_root_that_is_a_folder_is_refused(tmp_path):
    (tmp_path / "store.json").mkdir()
    with pytest.raises(StoreError, match="cannot be read"):
        open_store(tmp_path)


@pytest.mark.parametrize("change", [{"version": 3}, {"version": 0}, {"version": "1"}, {"format": "other"}])
def test_an_unknown_version_is_refused_and_not_called_damage(tmp_path, samples, change):
    path = samples.store(tmp_path / "s")
    root = open_store(path).root.model_dump(mode="json")
    (path / "store.json").write_bytes(sealed_json(root | change | {"captions_of_tomorrow": []}))
    for use in (open_store, verify_store):
        with pytest.raises(StoreError, match=r"this clipmill reads 'clipmill-store' version 1 or 2: use the matching"):
            use(path)
    with pytest.raises(StoreError, match="version"), open_writer(path):
        pytest.fail("a newer store was opened for writing")


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]\n", b"\xff\xfe", b'{"digest": "00"}', b"[" * 100_000, b'{"a": 1e999, "digest": "0"}']
)
def test_a_root_that_is_none_is_damage(tmp_path, data):
    (tmp_path / "store.json").write_bytes(data)
    with pytest.raises(DamageFound, match=r"store\.json"):
        open_store(tmp_path)
    with pytest.raises(DamageFound, match=r"store\.json"), open_writer(tmp_path):
        pytest.fail("a damaged store was opened for writing")
    assert (tmp_path / "store.json").read_bytes() == data


@pytest.mark.parametrize("unknown", [{"extra": 1}, {"files": {"../a": {"bytes": 1, "xxh3": ""}}}, {"streams": []}])
def test_a_sealed_root_that_breaks_the_schema_is_damage(tmp_path, unknown):
    (tmp_path / "store.json").write_bytes(sealed_json(Root().model_dump(mode="json") | unknown))
    with pytest.raises(DamageFound, match="is not a root of version 1"):
        open_store(tmp_path)


def test_every_flipped_bit_of_a_root_is_damage_or_another_version(tmp_path, samples):
    path = samples.store(tmp_path / "s", units=1)
    data = (path / "store.json").read_bytes()
    for bit in range(0, len(data) * 8, 37):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        (path / "store.json").write_bytes(flipped)
        with pytest.raises(DamageFound, match=r"store\.json"):
            open_store(path)


def test_two_writers_exclude_each_other(tmp_path):
    with (
        open_writer(tmp_path / "s"),
        pytest.raises(StoreError, match=f"process {os.getpid()}"),
        open_writer(tmp_path / "s"),
    ):
        pytest.fail("two writers")


@pytest.mark.parametrize("name", ["notes.txt", "captions", "features", "runs"])
def test_a_folder_with_other_things_is_refused(tmp_path, name):
    """A folder `captions` of the user's own, or a store that has lost its root: a new root would orphan the files."""
    target = tmp_path / name / "captions.csv" if name != "notes.txt" else tmp_path / name
    target.parent.mkdir(exist_ok=True)
    target.write_text("precious")
    with pytest.raises(StoreError, match=f"not empty .it holds '{name}'"), open_writer(tmp_path):
        pytest.fail("somebody's folder became a store")
    assert target.read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_lost_root_is_not_replaced_by_an_empty_one(tmp_path, samples):
    path = samples.store(tmp_path / "s")
    (path / "store.json").rename(tmp_path / "away")
    with pytest.raises(StoreError, match="is no store and not empty"), open_writer(path):
        pytest.fail("a new root would make every file a leftover")
    (tmp_path / "away").rename(path / "store.json")
    assert verify_store(path) == []


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_path_that_cannot_be_a_folder_is_refused(tmp_path, path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="give an empty or new folder"), open_writer(tmp_path / path):
        pytest.fail("a file became a store")


def test_leftovers_of_a_killed_run_go_and_strangers_stay(tmp_path, samples):
    path = samples.store(tmp_path / "s")
    whole = content(path)
    ours = [
        "features/default/00009-0123456789ab.npy",
        "features/gone/00009-0123456789ab.growing.h5",
        "features/gone/00009-0123456789ab.spans.npy",
        "captions/00009-0123456789ab.jsonl.gz",
        "manifests/x-0123456789ab/captions.00001.csv",
        "manifests/x.y-0123456789ab/windows-train.csv",
    ]
    strangers = ["features/default/notes.txt", "captions/captions.csv", "manifests/manifest.json", "frames/a.npy"]
    for name in (*ours, *strangers):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("x")
    (path / ".tmp" / "half").mkdir(parents=True)
    (path / ".store.json.tmp").write_text("half a root")
    with open_writer(path) as writer:
        assert not writer.scratch.exists(), "scratch of a dead run would be in the way"
        removed = writer.remove_leftovers()
    assert set(removed) == set(ours) - {ours[1]}
    left = {*strangers, ours[1]}
    assert set(content(path)) == {*whole, *left}
    assert {damage.path for damage in verify_store(path)} == left


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("nth", range(12))
def test_a_disk_that_fills_up_at_any_call_leaves_the_old_store_or_the_new(tmp_path, samples, monkeypatch, call, nth):
    path = samples.store(tmp_path / "s", units=1)
    old = (path / "store.json").read_bytes()
    real, made = getattr(os, call), []

    def full(*arguments):
        made.append(arguments)
        if len(made) > nth:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments)

    entry = samples.entry()
    stopped = False
    with monkeypatch.context() as patch:
        try:
            with open_writer(path) as writer:
                shards = [samples.shard(tmp_path / "scratch", entry, unit) for unit in (0, 1)]
                patch.setattr(os, call, full)
                writer.commit([file for shard in shards for file in shard.files], streams=with_shards(entry, *shards))
        except StoppedEarly:
            stopped = True
    root_replaced = (path / "store.json").read_bytes() != old
    assert stopped or root_replaced
    assert all("orphan" in damage.what for damage in verify_store(path))
    with open_writer(path) as writer:
        shards = [samples.shard(tmp_path / "again", entry, unit) for unit in (0, 1)]
        writer.commit([file for shard in shards for file in shard.files], streams=with_shards(entry, *shards))
        writer.remove_leftovers()
    assert verify_store(path) == []
    assert open_store(path).stream("default").video_ids == ["v00", "v01", "v02", "v10", "v11", "v12"]


@BOTH
def test_a_really_full_disk_stops_early_with_the_old_store_intact(small_disk, samples, container):
    path = samples.store(small_disk / "s", container)
    whole = content(path)
    entry = samples.entry(container)
    done = 0
    with pytest.raises(StoppedEarly), open_writer(path) as writer:  # noqa: PT012  (which unit fills it is not known)
        for unit in range(2, 1000):
            shard = samples.shard(writer.scratch, entry, unit, videos=60)
            refs = (*writer.root.streams["default"].shards, shard.ref)
            writer.commit(shard.files, streams={"default": entry.model_copy(update={"shards": refs})})
            done = unit
    assert done > 2
    assert all("orphan" in damage.what for damage in verify_store(path))
    assert len(open_store(path).root.streams["default"].shards) >= done
    assert {name: data for name, data in content(path).items() if name in whole and name != "store.json"} == {
        name: data for name, data in whole.items() if name != "store.json"
    }
    with open_writer(path) as writer:
        entry = writer.root.streams["default"]
        writer.remove_leftovers()
        writer.commit([], streams={"default": entry.model_copy(update={"shards": entry.shards[:2]})})
    assert content(path) == whole, "and the run goes on once there is space"


def test_run_records_and_caches_are_no_part_of_the_store(tmp_path, samples):
    path = samples.store(tmp_path / "s")
    whole = content(path)
    (path / "runs").mkdir()
    (path / "runs" / "1.json").write_bytes(sealed_json({"host": "a"}))
    (path / ".cache").mkdir()
    (path / ".cache" / "x").write_text("y")
    assert verify_store(path) == []
    with open_writer(path) as writer:
        assert writer.remove_leftovers() == []
    assert json.loads((path / "runs" / "1.json").read_bytes())["host"] == "a"
    assert {k: v for k, v in content(path).items() if not k.startswith(("runs", ".cache"))} == whole


def test_a_place_inside_a_store_is_refused_for_other_files(tmp_path, samples):
    path = samples.store(tmp_path / "s")
    (tmp_path / "link").symlink_to(path / "features")
    for inside in (path, path / "runs" / "a", path / "features" / "default", tmp_path / "link" / "a"):
        with pytest.raises(RequestError, match=r"is inside the store .*; put the run folder somewhere else"):
            refuse_inside_store(inside, "the run folder")
    refuse_inside_store(tmp_path, "the run folder")
    refuse_inside_store(tmp_path / "s2" / "new", "the run folder")
