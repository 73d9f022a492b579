"""Captions kept in a store to a manifest set: every video accounted for, the same bytes each time."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from preprocess import manifests
from preprocess.captions.clean import CleanConfig
from preprocess.captions.filters import FilterConfig
from preprocess.captions.split import SplitConfig
from preprocess.captions.tokenise import TokenizerConfig
from preprocess.captions.windows import WindowConfig
from preprocess.manifests import BuiltSet, SetConfig, build_set
from shared.captions import KeptCaptions, KeptTrack, write_caption_shard
from shared.errors import EnvironmentLacking, Failure, RequestError, StoreError
from shared.schema import FailureRecord, Source, StreamEntry
from shared.shard_writer import ShardWriter
from shared.store import open_store, open_writer
from shared.verify import verify_store

SRT = (
    b"1\n00:00:00,500 --> 00:00:01,500\n<i>open</i> the oven\n\n2\n00:00:03,000 --> 00:00:04,000\n[Music]\n\n"
    b"3\n00:00:05,000 --> 00:00:06,000\nslide the bread in\n\n4\n00:00:1x,000 --> 00:00:06,000\nbad\n\n"
    b"5\n00:00:07,000 --> 00:00:20,000\nwait\n"
)
VTT = b"WEBVTT\n\n00:01.000 --> 00:02.000\nthe crust\n"


def video(video_id: str, *tracks: tuple[str, bytes], split: str | None = None, **more: object) -> KeptCaptions:
    kept = tuple(KeptTrack(name, data) for name, data in tracks)
    return KeptCaptions(video_id, split, {}, kept, **more)  # type: ignore[arg-type]


VIDEOS = [
    video("b", ("b.srt", SRT), split="train"),
    video("a", ("a.vtt", VTT), split="test"),
    video("silent", split="train"),
    video("garbage", ("g.vtt", b"garbage"), split="train"),
    video("second", ("g.vtt", b"garbage"), ("s.vtt", VTT), split="train"),
    video("missing", split="train", failure=FailureRecord(
        id="missing", reason="missing_file", stage="captions", message="no caption file")),
    video("broken", ("b.srt", SRT), split="train"),
    video("later", ("b.srt", SRT), split="train"),
    video("odd", ("b.srt", SRT), split="../up"),
    video("-hashed", ("b.srt", SRT)),
]  # fmt: skip
WITH_ROWS = [v.video_id for v in VIDEOS if v.video_id not in {"broken", "later"}]


def make_store(path: Path, videos: list[KeptCaptions], with_rows: list[str], seconds: int = 10) -> Path:
    spans = np.stack([np.arange(float(seconds)), np.arange(float(seconds)) + 1], axis=1)
    entry = StreamEntry(
        kind="features", fingerprint="ab", identity={}, container="npy", dtype="float16", row_shape=(2,)
    )
    with open_writer(path) as writer:
        with ShardWriter(writer.scratch, "default", entry, "ab", 0) as shard:
            for video_id in with_rows:
                shard.append(np.ones((seconds, 2), np.float16))
                shard.end_video(
                    video_id,
                    source=Source(bytes=1, xxh3="ab"),
                    duration=float(seconds),
                    decoder="decord",
                    partial=False,
                    spans=spans,
                    valid=np.zeros(seconds, np.int32),
                )
            shard.fail_video("broken", Failure("corrupt", "decode", "cut short"), None)
            made = shard.finish()
        captions = write_caption_shard(writer.scratch, 0, videos)
        files = [*made.files, *captions.files]
        streams = {"default": entry.model_copy(update={"shards": (made.ref,)})}
        writer.commit(files, streams=streams, captions=(captions.ref,))
    return path


def build(store: Path, name: str = "default", **config: object) -> BuiltSet:
    with open_writer(store) as writer:
        return build_set(writer, name, SetConfig(**config))  # type: ignore[arg-type]


def set_bytes(store: Path, built: BuiltSet) -> dict[str, str]:
    folder = store / built.info.folder
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store", VIDEOS, WITH_ROWS)


def test_every_video_ends_in_the_videos_or_in_the_failures(store: Path) -> None:
    build(store)
    made = open_store(store).manifest_set("default")
    assert made.video_ids == ["b", "a", "silent", "second", "-hashed"]
    assert {row["video_id"]: (row["stage"], row["reason"]) for row in made.failures} == {
        "garbage": ("captions", "not_captions"),
        "missing": ("captions", "missing_file"),
        "broken": ("decode", "corrupt"),
        "later": ("extract", "not_extracted"),
        "odd": ("split", "bad_split"),
    }
    assert {row["video_id"]: (row["captions"], row["windows"]) for row in made.videos}["silent"] == ("0", "0")
    assert verify_store(store) == []


def test_windows_captions_and_tokens_agree(store: Path) -> None:
    build(store, windows=WindowConfig(min_seconds=4.0, candidates=2))
    made = open_store(store).manifest_set("default")
    assert made.caption_texts[:3] == ["open the oven", "slide the bread in", "wait"]
    train = made.windows("train")
    of_b = train.video_W == made.video_number["b"]
    assert train.start_W[of_b].tolist() == [0.0, 3.5, 6.0]
    assert train.end_W[of_b].tolist() == [4.0, 7.5, 10.0]
    assert train.first_row_W[of_b].tolist() == [0, 3, 6]
    assert [train.candidates_of(window).tolist() for window in range(3)] == [[0, 1], [1, 2], [2, 1]]
    test = made.windows("test")
    assert [made.caption_texts[caption] for caption in test.candidates_of(0)] == ["the crust"]
    tokens, mask = made.tokens(np.array([[0, 2, -1]]), 6)
    assert mask.sum(axis=2).tolist() == [[5, 3, 0]]
    assert tokens.tolist() == [[[101, 2330, 1996, 17428, 102, 0], [101, 3524, 102, 0, 0, 0], [0] * 6]]


def test_the_report(store: Path) -> None:
    report = build(store).info.report
    assert report["videos"]["test"] == 1
    assert (report["videos_without_captions"], report["videos_without_windows"]) == (1, 1)
    assert report["failures"] == {
        "bad_split": 1, "corrupt": 1, "missing_file": 1, "not_captions": 1, "not_extracted": 1,
    }  # fmt: skip
    assert report["cues"] == 10
    assert report["skipped_cues"]["count"] == 2
    assert report["skipped_cues"]["examples"][0] == ["b", "line 14: not a timing line: '00:00:1x,000 --> 00:00:06,000'"]
    assert report["cleaning"]["tags"]["changed"] == 2
    assert report["cleaning"]["tags"]["examples"][0] == [
        "b", "0.500 --> 1.500 <i>open</i> the oven", "0.500 --> 1.500 open the oven",
    ]  # fmt: skip
    assert report["cleaning"]["beyond_end"]["changed"] == 2
    assert report["tokens"] == {"truncated": 0.0, "empty": 0.0, "unknown": 0.0}


def test_windows_without_rows_are_reported(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [video("a", ("a.srt", SRT), split="train")], ["a"])
    report = build(store, windows=WindowConfig(strategy="fixed", length=2.0)).info.report
    assert report["windows_left_out"] == {
        "counts": {"no_captions": 1},
        "examples": [["a", 2.0, 4.0, "no_captions"]],
    }


def test_the_same_inputs_give_the_same_bytes_and_nothing_to_do(store: Path, tmp_path: Path) -> None:
    first = build(store)
    assert first.changed
    root = (store / "store.json").read_bytes()
    again = build(store)
    assert not again.changed
    assert again.info == first.info
    assert (store / "store.json").read_bytes() == root
    other = make_store(tmp_path / "other", VIDEOS, WITH_ROWS)
    assert set_bytes(other, build(other)) == set_bytes(store, first)
    assert (other / "store.json").read_bytes() == root


def test_batches_do_not_show(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = set_bytes(store, build(store))
    monkeypatch.setattr(manifests, "_BATCH_CAPTIONS", 1)
    other = make_store(tmp_path / "other", VIDEOS, WITH_ROWS)
    assert set_bytes(other, build(other)) == whole


def test_another_config_is_another_set(store: Path) -> None:
    build(store)
    changed = build(store, clean=CleanConfig(sounds=False))
    assert changed.changed
    assert changed.info.captions > 0
    assert "[Music]" in open_store(store).manifest_set("default").caption_texts
    build(store, "longer", windows=WindowConfig(min_seconds=9.0))
    assert sorted(open_store(store).root.sets) == ["default", "longer"]
    assert verify_store(store) == []


def test_an_exclusion_list_and_hashed_splits(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("b\n")
    build(store, split=SplitConfig(exclude=path, given=False, fractions={"all": 1.0}))
    made = open_store(store).manifest_set("default")
    assert {"video_id": "b", "stage": "split", "reason": "excluded"}.items() <= made.failures[0].items()
    assert made.splits == ["all"]
    assert "odd" in made.video_ids
    path.write_text("a\n")
    assert build(store, split=SplitConfig(exclude=path, given=False, fractions={"all": 1.0})).changed


def test_a_stream_or_tokenizer_that_is_not_there_changes_nothing(store: Path) -> None:
    root = (store / "store.json").read_bytes()
    with pytest.raises(StoreError, match="no stream 'absent'"):
        build(store, stream="absent")
    with pytest.raises(EnvironmentLacking):
        build(store, tokenizer=TokenizerConfig(name="/absent"))
    assert (store / "store.json").read_bytes() == root


def test_it_says_what_it_made(store: Path) -> None:
    assert build(store, split=SplitConfig(given=False, fractions={"all": 1.0})).describe() == (
        "set default: made, 11 captions, windows: 11 all"
    )
    assert ": unchanged, " in build(store, split=SplitConfig(given=False, fractions={"all": 1.0})).describe()


@pytest.mark.parametrize("file", ["manifest.json", "tokens.npy", "windows-train.csv"])
def test_a_damaged_set_is_made_again(store: Path, file: str) -> None:
    first = build(store)
    before = set_bytes(store, first)
    path = store / first.info.folder / file
    data = path.read_bytes()
    path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    assert [damage.path for damage in verify_store(store)] == [path.relative_to(store).as_posix()]
    again = build(store)
    assert again.changed
    assert set_bytes(store, again) == before
    assert verify_store(store) == []
    assert not build(store).changed


GERMAN = "WEBVTT\n\n" + "".join(
    f"00:0{n}.000 --> 00:0{n}.900\n{said}\n\n"
    for n, said in enumerate(("Zuerst heizen wir den Ofen vor", "dann kneten wir den Teig gut durch", "und backen ihn"))
)


def test_filters_leave_out_what_was_asked_and_tell(tmp_path: Path) -> None:
    videos = [video("a", ("a.srt", SRT), split="train"), video("de", ("de.vtt", GERMAN.encode()), split="train")]
    store = make_store(tmp_path / "store", videos, ["a", "de"])
    assert build(store).info.report["filters"] == {}
    made = build(store, filters=FilterConfig(min_words=2, languages=("en", "fr")))
    assert open_store(store).manifest_set("default").caption_texts == ["open the oven", "slide the bread in"]
    assert made.info.report["filters"] == {
        "languages": {"dropped": 3, "examples": [["de", said, "de"] for said in (
            "Zuerst heizen wir den Ofen vor", "dann kneten wir den Teig gut durch", "und backen ihn")]},
        "min_words": {"dropped": 1, "examples": [["a", "wait", "fewer than 2 words"]]},
    }  # fmt: skip
    assert [row["captions"] for row in open_store(store).manifest_set("default").videos] == ["2", "0"]
    assert verify_store(store) == []


def test_a_language_that_nobody_tells_apart_is_refused(store: Path) -> None:
    with pytest.raises(RequestError, match=r"'english' is not one of .* en "):
        build(store, filters=FilterConfig(languages=("english",)))


def test_a_json_track_is_a_track(tmp_path: Path) -> None:
    entry = b'{"start": [1, -2], "end": [2.5, 3], "text": ["open the oven", "before the start"]}'
    store = make_store(tmp_path / "store", [video("a", ("caption.json", entry), split="train")], ["a"])
    report = build(store).info.report
    assert open_store(store).manifest_set("default").caption_texts == ["open the oven"]
    assert report["skipped_cues"] == {"count": 1, "examples": [["a", "cue 2: start is negative: -2"]]}
