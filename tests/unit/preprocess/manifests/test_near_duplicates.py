"""What stands in two splits: found by rows and by words, told, and left out of training where that is asked for."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from preprocess import near_duplicates
from preprocess.captions.split import SplitConfig
from preprocess.manifests import BuiltSet, SetConfig, build_set
from preprocess.near_duplicates import caption_hash, one_word_hashes
from shared.captions import KeptCaptions, KeptTrack, write_caption_shard
from shared.manifest_set import ManifestSet
from shared.schema import Source, StreamEntry
from shared.shard_writer import ShardWriter
from shared.store import open_store, open_writer
from shared.verify import verify_store

# id -> split, direction of its rows, captions
VIDEOS = {
    "t0": ("train", 0, ("now we open the oven", "add two eggs")),
    "v0": ("val", 1, ("Now, we OPEN the oven!", "add two eggs", "stir it slowly for an hour")),
    "t1": ("train", 1, ("quite another thing to say",)),
    "e0": ("test", 2, ("stir it slowly for an hour", "bake until it is brown")),
    "e1": ("test", 1, ("something that is said here alone",)),
    "v1": ("val", 1, ("like v0 and in the same split",)),
    "t2": ("train", 3, ("bake until it is brown", "stir it slowly for an hour")),
    "t3": ("train", 3, ("bake until it was brown",)),
}


def rows_of(number: int, direction: int) -> np.ndarray:
    """Four rows near one axis, and a little beside it, so that no two videos have the same bytes."""
    rows = np.full((4, 8), 0.01 * (1 + number), np.float16)
    rows[:, direction] = 2 + np.arange(4)
    return rows


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("near") / "store"
    spans = np.stack([np.arange(4.0), np.arange(4.0) + 1], axis=1)
    entry = StreamEntry(
        kind="features", fingerprint="ab", identity={}, container="npy", dtype="float16", row_shape=(8,)
    )
    kept = []
    with open_writer(path) as writer:
        with ShardWriter(writer.scratch, "default", entry, "ab", 0) as shard:
            for number, (video_id, (split, direction, texts)) in enumerate(VIDEOS.items()):
                shard.append(rows_of(number, direction))
                shard.end_video(
                    video_id, source=Source(bytes=1, xxh3="ab"), duration=4.0, decoder="decord", partial=False,
                    spans=spans, valid=np.zeros(4, np.int32),
                )  # fmt: skip
                cues = "".join(f"00:0{n}.000 --> 00:0{n}.900\n{text}\n\n" for n, text in enumerate(texts))
                kept.append(KeptCaptions(video_id, split, {}, (KeptTrack("a.vtt", f"WEBVTT\n\n{cues}".encode()),)))
            rows = shard.finish()
        captions = write_caption_shard(writer.scratch, 0, kept)
        streams = {"default": entry.model_copy(update={"shards": (rows.ref,)})}
        writer.commit([*rows.files, *captions.files], streams=streams, captions=(captions.ref,))
    return path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


def build(store: Path, **split: object) -> tuple[BuiltSet, ManifestSet]:
    config = SetConfig(split=SplitConfig(**split))  # type: ignore[arg-type]
    with open_writer(store) as writer:
        built = build_set(writer, "default", config)
    return built, open_store(store).manifest_set("default")


VIDEO_COUNTS = {"train, val": 1, "test, val": 1, "val, test": 1}
CAPTION_COUNTS = {"test, val": 1, "train, val": 1, "train, test": 2}


@pytest.mark.parametrize("block", [1, 2048])
def test_they_are_told(store: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(near_duplicates, "_BLOCK", block)
    plain, _ = build(store)
    built, made = build(store, near_duplicates="report")
    report = built.info.report["near_duplicates"]
    assert report["videos"]["counts"] == VIDEO_COUNTS
    assert [example[:4] for example in report["videos"]["examples"]] == [
        ["t1", "train", "v0", "val"], ["e1", "test", "v0", "val"], ["v1", "val", "e1", "test"],
    ]  # fmt: skip
    assert all(0.99 < example[4] <= 1 for example in report["videos"]["examples"])
    assert report["captions"]["counts"] == CAPTION_COUNTS
    assert report["captions"]["examples"] == [
        ["t0", "now we open the oven", "val"],
        ["t2", "bake until it is brown", "test"],
        ["t2", "stir it slowly for an hour", "test"],
    ]
    assert report["dropped"] is False
    assert plain.info.report["near_duplicates"] == {}
    assert built.info.captions == plain.info.captions
    assert made.video_ids == list(VIDEOS)


def test_they_are_left_out_of_training(store: Path) -> None:
    built, made = build(store, near_duplicates="drop")
    assert built.info.report["near_duplicates"]["dropped"] is True
    assert built.info.report["near_duplicates"]["videos"]["counts"] == VIDEO_COUNTS
    assert made.video_ids == ["t0", "v0", "e0", "e1", "v1", "t2", "t3"]
    (failure,) = made.failures
    assert (failure["video_id"], failure["stage"], failure["reason"]) == ("t1", "split", "near_duplicate")
    assert failure["message"].startswith("its rows are those of a video of split val: cosine 0.99")
    # Only those of training: the same words stay where they are held out.
    held_out = [text for video in ("v0", "e0", "e1", "v1") for text in VIDEOS[video][2]]
    assert sorted(made.caption_texts) == sorted(["add two eggs", "bake until it was brown", *held_out])
    assert verify_store(store) == []
    again, _ = build(store, near_duplicates="drop")
    assert not again.changed


def test_the_thresholds_count(store: Path) -> None:
    built, _ = build(store, near_duplicates="report", similar_videos=1.0, duplicate_words=3)
    report = built.info.report["near_duplicates"]
    assert report["videos"]["counts"] == {}
    assert report["captions"]["counts"]["train, val"] == 2


def test_captions_that_differ_by_a_word_are_found_on_request(store: Path) -> None:
    same, _ = build(store, near_duplicates="report", one_word_from=6)
    assert same.info.report["near_duplicates"]["captions"]["counts"] == CAPTION_COUNTS
    built, made = build(store, near_duplicates="drop", one_word_from=5)
    found = built.info.report["near_duplicates"]["captions"]
    assert found["counts"] == CAPTION_COUNTS | {"train, test": 3}
    assert found["examples"][-1] == ["t3", "bake until it was brown", "test"]
    assert "bake until it was brown" not in made.caption_texts


@pytest.mark.parametrize(
    ("other", "near"),
    [
        ("now we open the hot oven", True),
        ("the oven, now we OPEN hot", True),
        ("now we open the oven", True),
        ("now we open the very hot oven", True),
        ("now we close the hot oven", True),
        ("now we close the cold oven", False),
        ("now we open the oven very slowly", False),
        ("now now we open the hot oven", True),
        ("we open hot oven", False),
    ],
)
def test_what_differs_by_a_word(other: str, near: bool) -> None:
    config = SplitConfig(one_word_from=5)
    one, two = (set(one_word_hashes(text, config)) for text in ("now we open the hot oven", other))
    assert bool(one & two) is near


def test_short_captions_do_not_differ_by_a_word() -> None:
    assert one_word_hashes("open the oven", SplitConfig(one_word_from=2)) == []
    assert one_word_hashes("open the oven now", SplitConfig(one_word_from=5)) == []
    assert one_word_hashes("open the oven now", SplitConfig()) == []
    assert len(one_word_hashes("open the oven now", SplitConfig(one_word_from=2))) == 5


def test_another_training_split(store: Path) -> None:
    _, made = build(store, near_duplicates="drop", training="test")
    assert [row["video_id"] for row in made.failures] == ["e1"]


@pytest.mark.parametrize(
    ("text", "same"), [("Open, the OVEN now!", True), ("open the oven  now", True), ("open oven the now", False)]
)
def test_the_words_of_a_caption(text: str, same: bool) -> None:
    assert (caption_hash(text, 4) == caption_hash("open the oven now", 4)) is same
    assert caption_hash(text, 5) is None
