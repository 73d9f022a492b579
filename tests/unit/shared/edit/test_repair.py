"""After a repair the store is whole; what was sound is what it was; what is gone is named."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from shared.captions import read_captions
from shared.edit.ids import DAMAGED, removed_ids
from shared.edit.remove import remove_videos
from shared.edit.repair import repair_store
from shared.errors import DamageFound, StoreError
from shared.fingerprint import sealed_json
from shared.store import open_store, open_writer
from shared.verify import verify_store


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    bit = random.Random(path.name).randrange(len(data) * 8)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def blank(path: Path) -> None:
    """Sixteen bytes in the middle: more than a bit."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 16] = bytes(b ^ 0x5A for b in data[middle : middle + 16])
    path.write_bytes(data)


FAULTS = {"flip": flip, "cut": cut, "blank": blank, "delete": Path.unlink}


def kinds(store: Path) -> dict[str, Path]:
    """One file of every kind, by folder and suffix; the second of its kind where there are several."""
    found: dict[str, list[Path]] = {}
    for path in sorted(path for path in store.rglob("*") if path.is_file() and path.name != "store.json"):
        parts = path.relative_to(store).parts
        kind = path.name if parts[0] == "manifests" else f"{'/'.join(parts[:-1])}/*.{path.name.partition('.')[2]}"
        found.setdefault(kind, []).append(path)
    return {kind: paths[len(paths) > 1] for kind, paths in found.items()}


def sound_rows(editing, store: Path) -> int:
    """Every row that is there is right; how many videos have rows, over all streams."""
    opened, count = open_store(store), 0
    for name in opened.root.streams:
        stream = opened.stream(name)
        for number, video_id in enumerate(stream.video_ids):
            assert stream.read(number).tobytes() == editing.rows(name, video_id).tobytes()
            count += 1
    return count


def same_times(store: Path, built: Path) -> None:
    """Spans, and counts of real frames, are those that were written."""
    for name in open_store(store).root.streams:
        now, then = open_store(store).stream(name), open_store(built).stream(name)
        for number, video_id in enumerate(now.video_ids):
            there = then.video_ids.index(video_id)
            assert now.spans(number).tolist() == then.spans(there).tolist()
            assert now.valid(number).tolist() == then.valid(there).tolist()


EVERY_THIRD = [(fault, number % 3, 3) for number, fault in enumerate(FAULTS)]
ALL = [pytest.param(fault, 0, 1, marks=pytest.mark.full) for fault in FAULTS]


@pytest.mark.parametrize(("fault", "first", "every"), EVERY_THIRD + ALL)
def test_every_kind_of_file_and_damage(editing, store, fault, first, every, built):
    assert len(kinds(store)) == 4 + 4 + 4 + 2 + 8
    whole = editing.content(built)
    for kind in sorted(kinds(built))[first::every]:
        shutil.rmtree(store)
        shutil.copytree(built, store)
        FAULTS[fault](kinds(store)[kind])
        assert verify_store(store) != [], kind
        done = repair_store(store)
        assert verify_store(store) == [], kind
        assert not done.did_nothing, kind
        sound_rows(editing, store)
        same_times(store, built)
        if fault == "flip":
            assert editing.content(store) == whole, f"{kind}: one bit is mended"
        assert repair_store(store).did_nothing, kind


def test_a_whole_store_is_left_alone(editing, store):
    before = editing.content(store)
    assert repair_store(store).did_nothing
    assert editing.content(store) == before


@pytest.mark.parametrize(("stream", "suffix"), [("default", ".npy"), ("wide", ".h5")])
def test_videos_in_sound_blocks_stay(editing, tmp_path, monkeypatch, stream, suffix):
    from shared import shard_writer

    monkeypatch.setattr(shard_writer, "_BLOCK_BYTES", 32)  # some rows of the small streams
    store = editing.build(tmp_path / "store", ["a", "bb"])
    path = next((store / "features" / stream).glob(f"?????-????????????{suffix}"))
    data = bytearray(path.read_bytes())
    first = editing.rows(stream, "bb")[-1].tobytes()
    data[data.index(first) : data.index(first) + 4] = b"\x01\x02\x03\x04"
    path.write_bytes(data)
    done = repair_store(store)
    assert done.lost == {stream: ["bb"]}
    reader = open_store(store).stream(stream)
    assert reader.video_ids == ["a"]
    assert reader.read(0).tobytes() == editing.rows(stream, "a").tobytes()
    assert [(record.id, record.reason, record.source.xxh3) for record in reader.failure_records] == [
        ("bb", DAMAGED, "ab")
    ]
    expected = [("words", "1 video taken out, whose rows are lost")] if stream == "default" else []
    assert done.sets == expected
    assert "bb" not in open_store(store).manifest_set("words").video_ids or stream == "wide"


def test_rows_before_a_cut_stay(editing, tmp_path, monkeypatch):
    from shared import shard_writer

    monkeypatch.setattr(shard_writer, "_BLOCK_BYTES", 32)
    for stream, suffix in (("default", ".npy"), ("wide", ".h5")):
        store = editing.build(tmp_path / stream, ["a", "bb"])
        path = next((store / "features" / stream).glob(f"?????-????????????{suffix}"))
        path.write_bytes(path.read_bytes()[:-5])
        assert repair_store(store).lost == {stream: ["bb"]}
        assert sound_rows(editing, store) == 5


def test_headers_are_written_again(editing, store, built):
    for path in sorted((store / "features").rglob("*.npy")):
        data = path.read_bytes()
        path.write_bytes(bytes(128) + data[128:])
    for path in sorted((store / "features").rglob("*.h5")):
        data = path.read_bytes()
        path.write_bytes(bytes(64) + data[64:])
    done = repair_store(store)
    assert len(done.mended) > 10
    assert editing.content(store) == editing.content(built)


def test_a_lost_index_is_named(store):
    path = sorted((store / "features" / "default").glob("*.json"))[1]
    path.unlink()
    done = repair_store(store)
    assert done.unnamed == [(f"features/default/{path.stem}", 2)]
    assert done.sets == [("words", "1 video taken out, whose rows are lost")]  # ccc; x1 had failed
    assert open_store(store).manifest_set("words").video_ids == ["a", "bb", "d", "ee", "fff", "g", "h"]


def test_captions_before_the_damage_stay(editing, store):
    path = sorted((store / "captions").glob("*.gz"))[0]
    path.write_bytes(path.read_bytes()[:-30])
    done = repair_store(store)
    assert done.captions
    kept = {video.video_id: video for video in read_captions(open_store(store))}
    assert len(kept) == 9
    for video_id, video in kept.items():
        lost = video_id in done.captions
        assert (video.failure.reason if video.failure else None) == (DAMAGED if lost else None)
        assert video == editing.kept(video_id) or lost
        assert video.attributes == {"title": f"title of {video_id}"}


def test_takedowns_outlive_a_lost_index_of_captions(editing, store):
    with open_writer(store) as writer:
        remove_videos(writer, ["bb"])
    sorted((store / "captions").glob("*.json"))[0].unlink()
    done = repair_store(store)
    assert done.buried == ["bb"]
    assert removed_ids(open_store(store)) == {"bb"}
    kept = {video.video_id: video.tracks for video in read_captions(open_store(store))}
    assert kept["ccc"] == editing.kept("ccc").tracks


def test_both_files_of_captions_lost(store):
    for path in (store / "captions").glob("00000-*"):
        path.unlink()
    done = repair_store(store)
    assert len(done.caption_shards) == 1
    assert [video.video_id for video in read_captions(open_store(store))] == ["d", "ee", "fff", "g", "h"]


def test_the_root_is_mended_or_refused(editing, store, built):
    for number in range(5):
        data = bytearray((store / "store.json").read_bytes())
        bit = random.Random(number).randrange(len(data) * 8)
        data[bit // 8] ^= 1 << bit % 8
        (store / "store.json").write_bytes(data)
        assert repair_store(store).mended == ["store.json"]
        assert editing.content(store) == editing.content(built)
    cut(store / "store.json")
    with pytest.raises(DamageFound, match=r"cannot be repaired: .*Put a copy of store\.json back"):
        repair_store(store)
    (store / "store.json").unlink()
    with pytest.raises(StoreError, match="no store"):
        repair_store(store)


def test_run_records_and_strangers(store):
    (store / "runs").mkdir()
    record = sealed_json({"host": "a", "workers": 4})
    (store / "runs" / "a.json").write_bytes(record[:9] + bytes([record[9] ^ 4]) + record[10:])
    (store / "runs" / "b.json").write_text("{}")
    (store / "features" / "default" / "thesis.tex").write_text("my only copy")
    done = repair_store(store)
    assert (done.mended, done.deleted, done.aside) == (
        ["runs/a.json"],
        ["runs/b.json"],
        ["features/default/thesis.tex"],
    )
    assert (store / "runs" / "a.json").read_bytes() == record
    assert (store / "set-aside" / "features" / "default" / "thesis.tex").read_text() == "my only copy"
    assert verify_store(store) == []


def test_a_disagreement_that_no_rule_covers_is_told(editing, store):
    with open_writer(store) as writer:
        shard = editing.shard(writer.scratch, "default", 9, ["a"])  # a second time
        entry = writer.root.streams["default"]
        entry = entry.model_copy(update={"shards": (*entry.shards, shard.ref)})
        writer.commit(shard.files, streams=writer.root.streams | {"default": entry})
    with pytest.raises(DamageFound, match="beyond repair"):
        repair_store(store)


def test_same_damage_same_bytes(editing, built, tmp_path):
    made = []
    for name in ("one", "two"):
        store = Path(shutil.copytree(built, tmp_path / name))
        blank(kinds(store)["features/wide/*.h5"])
        blank(kinds(store)["captions/*.jsonl.gz"])
        repair_store(store)
        made.append(editing.content(store))
    assert made[0] == made[1]
