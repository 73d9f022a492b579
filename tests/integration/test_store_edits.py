"""Stores that were edited or repaired, and the runs that follow: nothing comes back or is done twice, same bytes."""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from preprocess.cli import app
from preprocess.config import PreprocessConfig
from preprocess.extraction import Progress
from preprocess.run import RunResult, run
from preprocess.takedown import take_down
from shared.edit.remove import restore_videos
from shared.edit.repair import repair_store
from shared.edit.target import existing_store
from shared.errors import ClipmillError
from shared.store import open_store
from shared.verify import verify_store

STREAMS = {
    "default": {"kind": "timm", "size": 64},
    "wide": {"kind": "frames", "size": [24, 32], "sampling": {"fps": 0.5}},
}


def config_of(folder: Path) -> dict[str, object]:
    return {
        "inputs": str(folder / "videos.csv"),
        "store": str(folder / "store"),
        "shard_videos": 3,
        "streams": STREAMS,
        "sets": {"default": {"windows": {"candidates": 2}}},
        "engine": "here",
        "device": "cpu",
    }


def bring_up(folder: Path) -> RunResult:
    config = PreprocessConfig.model_validate(config_of(folder))
    return run(config, Progress(note=lambda _: None, units=lambda *_: None))


def content(store: Path) -> dict[str, bytes]:
    outside = {".cache", "runs"}
    files = (path for path in store.rglob("*") if path.is_file() and path.relative_to(store).parts[0] not in outside)
    return {path.relative_to(store).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def made(small_media: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The media with the store that an undisturbed run makes of them; not to be changed."""
    folder = Path(shutil.copytree(small_media, tmp_path_factory.mktemp("made") / "media"))
    bring_up(folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "media"))


def test_more_inputs_rewrite_nothing_that_was_committed(small_media: Path, made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(small_media, tmp_path / "media"))
    with (folder / "videos.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    with (folder / "videos.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows[:9])
    bring_up(folder)
    before = {
        path: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in sorted((folder / "store").rglob("*"))
        if path.is_file() and path.relative_to(folder / "store").parts[0] in ("features", "frames", "captions")
    }
    assert len(before) > 10
    shutil.copy(small_media / "videos.csv", folder / "videos.csv")
    assert bring_up(folder).extracted == 6
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in before} == before
    assert verify_store(folder / "store") == []
    whole, grown = open_store(made / "store").stream("default"), open_store(folder / "store").stream("default")
    assert grown.video_ids == whole.video_ids
    assert all(grown.read(n).tobytes() == whole.read(n).tobytes() for n in range(len(whole.video_ids)))


def test_a_removed_video_stays_out_until_it_is_restored(made: Path, folder: Path) -> None:
    store = folder / "store"
    clip = (folder / "clip 4.mp4").name.encode()
    assert any(clip in path.read_bytes() for path in (store / ".cache").iterdir())
    take_down(store, ["v4", "broken"])
    assert not any(clip in path.read_bytes() for path in store.rglob("*") if path.is_file())
    left = [path for path in store.rglob("*") if path.is_file() and b'"v4"' in path.read_bytes()]
    assert [path.parent.name for path in left] == ["captions"], "the tombstone alone names it"
    for _ in range(2):
        result = bring_up(folder)
        assert (result.extracted, sorted(result.keep.removed)) == (0, ["broken", "v4"])
        assert "v4" not in open_store(store).stream("default").video_ids
        manifest = open_store(store).manifest_set("default")
        assert not {"v4", "broken"} & ({*manifest.video_ids} | {row["video_id"] for row in manifest.failures})
        assert verify_store(store) == []
    (folder / "config.yaml").write_text(json.dumps(config_of(folder)))
    said = CliRunner().invoke(app, ["run", str(folder / "config.yaml")]).output
    assert "14 inputs: 11 done, 1 failed, 2 removed; nothing to do" in said
    assert "removed before and not extracted again: 'v4', 'broken'; `preprocess restore` lets them in" in said
    with existing_store(store) as writer:
        restore_videos(writer, ["v4"])
    assert bring_up(folder).extracted == 1
    was, now = (open_store(path / "store").stream("default") for path in (made, folder))
    assert now.video_ids == was.video_ids
    assert now.read(now.video_ids.index("v4")).tobytes() == was.read(was.video_ids.index("v4")).tobytes()
    assert "broken" not in {video_id for video_id, _ in now.failures}


def test_the_set_that_remove_leaves_is_the_set_that_a_run_makes(folder: Path) -> None:
    take_down(folder / "store", ["v4", "v8"])
    edited = {path.name: path.read_bytes() for path in (folder / "store" / "manifests").glob("*/*")}
    bring_up(folder)
    anew = {path.name: path.read_bytes() for path in (folder / "store" / "manifests").glob("*/*")}
    edited.pop("manifest.json"), anew.pop("manifest.json")
    assert edited == anew


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    bit = random.Random(path.name).randrange(len(data) * 8)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def files_of_a_kind(store: Path) -> list[Path]:
    """The second file of every kind, by folder and suffix, where there are several."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(path for path in store.rglob("*") if path.is_file() and path.name != "store.json"):
        parts = path.relative_to(store).parts
        if parts[0] not in (".cache", "runs"):
            kind = path.name if parts[0] == "manifests" else f"{parts[1]} {path.name.partition('.')[2]}"
            kinds.setdefault(kind, []).append(path)
    return [paths[len(paths) > 1] for _, paths in sorted(kinds.items())]


def repaired_and_run(made: Path, folder: Path, faults: list[Callable[[Path], None]], every: int) -> None:
    reference, store = content(made / "store"), folder / "store"
    done = 0
    for fault in faults:
        for number in range(0, len(files_of_a_kind(made / "store")), every):
            shutil.rmtree(store)
            shutil.copytree(made / "store", store)
            victim = files_of_a_kind(store)[number]
            fault(victim)
            assert verify_store(store) != [], victim
            repair_store(store)
            assert verify_store(store) == [], victim
            bring_up(folder)
            assert content(store) == reference, victim
            assert bring_up(folder).did_nothing
            done += 1
    assert done >= 4 * len(faults)


def test_a_repaired_store_becomes_what_it_was_with_the_next_run(made: Path, folder: Path) -> None:
    repaired_and_run(made, folder, [cut], every=4)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_repaired_store_becomes_what_it_was_whatever_was_damaged(made: Path, folder: Path) -> None:
    repaired_and_run(made, folder, [flip, cut, Path.unlink], every=1)


def test_sound_rows_whose_input_is_gone_outlive_damage_beside_them(made: Path, folder: Path) -> None:
    """The shard is made again as far as its inputs can be read; what nothing could make again is kept."""
    store = folder / "store"
    (shard,) = (ref for ref in open_store(store).root.streams["default"].shards if ref.name.startswith("00001-"))
    cut(store / "features" / "default" / f"{shard.name}.npy")
    lost = repair_store(store).lost["default"]
    assert lost, "a small shard is one block: all of it is lost"
    before = open_store(made / "store").stream("default")
    (folder / "clip 0.mp4").unlink()
    bring_up(folder)
    after = open_store(store).stream("default")
    assert after.video_ids == before.video_ids
    assert all(after.read(n).tobytes() == before.read(n).tobytes() for n in range(len(after.video_ids)))


def test_the_commands_and_their_exit_codes(made: Path, folder: Path, tmp_path: Path) -> None:
    store = folder / "store"
    (tmp_path / "ids.txt").write_text("v4\n")
    for arguments, code, words in (
        (["remove", store, "v4", "nobody"], 2, "no video 'nobody': nothing was changed"),
        (["remove", tmp_path / "none", "v4"], 2, "is no store"),
        (["remove", store, "--ids", tmp_path / "ids.txt"], 0, "1 video removed"),
        (["merge", tmp_path / "both", made / "store", store], 2, "'v4': removed from"),
        (["subset", store, tmp_path / "val", "--set", "default", "--split", "val"], 0, "2 videos of"),
        (["compact", store], 0, "shards before"),
        (["restore", store, "v4"], 0, "may come in again"),
        (["repair", store], 0, "was whole"),
        (["verify", store], 0, "is whole"),
        (["verify", tmp_path / "val"], 0, "is whole"),
    ):
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        error = done.exception if isinstance(done.exception, ClipmillError) else None
        said = done.output + str(error or "")
        assert (error.exit_code if error else done.exit_code, words in said) == (code, True), said
    assert not (tmp_path / "none").exists()
    assert not (tmp_path / "both").exists()
