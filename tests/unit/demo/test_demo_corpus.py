"""The demo corpus: the same bytes from the same seed, a manifest that holds, captions that say what is shown."""

from __future__ import annotations

import csv
import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from demo.caption_files import FORMS
from demo.corpus import Video, draw_corpus, manifest_text, shuffle_captions
from demo.narration import OFF_TOPIC, SOUNDS, narrate
from demo.scenes import COLOURS, MOVEMENTS, OBJECTS, PLACES, draw_scenes
from shared.errors import RequestError

SEED, VIDEOS = 3, 4
DEFAULT_VIDEOS = 120


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    assert draw_corpus(folder, SEED, VIDEOS)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def rows(manifest: Path) -> list[dict[str, str]]:
    with manifest.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_same_seed_gives_the_same_bytes_and_another_seed_others(corpus, tmp_path):
    draw_corpus(tmp_path / "again", SEED, VIDEOS)
    draw_corpus(tmp_path / "other", SEED + 1, VIDEOS)
    first, other = contents(corpus), contents(tmp_path / "other")
    assert first == contents(tmp_path / "again")
    videos = [name for name in first if name.endswith(".mp4")]
    assert len(videos) == VIDEOS
    assert all(first[name] != other[name] for name in videos)


def test_manifest_names_what_was_drawn_and_nothing_partial_stays(corpus):
    listed = rows(corpus / "videos.csv")
    named = {row[column] for row in listed for column in ("video_path", "caption_path")}
    assert named | {"videos.csv", "corpus.json"} == set(contents(corpus))
    assert len({row["video_id"] for row in listed}) == VIDEOS
    assert {row["split"] for row in listed} == {"train", "val"}


def test_videos_are_h264_and_as_long_as_their_scenes(corpus):
    av = pytest.importorskip("av")
    for number in range(VIDEOS):
        video = Video(SEED, number)
        with av.open(str(corpus / video.video_path)) as container:
            stream = container.streams.video[0]
            assert stream.codec_context.name == "h264"
            assert (stream.width, stream.height) == (256, 192)
            seconds = draw_scenes(SEED, number, video.fps)[-1].end
            assert stream.frames == round(seconds * video.fps)


def test_a_second_drawing_does_nothing_and_another_corpus_is_not_overwritten(corpus):
    before = contents(corpus)
    assert not draw_corpus(corpus, SEED, VIDEOS)
    with pytest.raises(RequestError, match="another corpus"):
        draw_corpus(corpus, SEED + 1, VIDEOS)
    assert contents(corpus) == before


def test_a_corpus_without_its_record_is_drawn_again(corpus, tmp_path):
    folder = tmp_path / "interrupted"
    shutil.copytree(corpus, folder)
    (folder / "corpus.json").unlink()
    (folder / "videos" / "demo_001.mp4").write_bytes(b"half")
    assert draw_corpus(folder, SEED, VIDEOS)
    assert contents(folder) == contents(corpus)


@pytest.mark.parametrize(("seed", "videos"), [(0, 3), (-1, 4)])
def test_unusable_requests_are_refused(tmp_path, seed, videos):
    with pytest.raises(RequestError, match="expected"):
        draw_corpus(tmp_path, seed, videos)


def test_scenes_combine_four_attributes_within_their_limits():
    for number in range(DEFAULT_VIDEOS):
        video = Video(0, number)
        scenes = draw_scenes(0, number, video.fps)
        assert 4 <= len(scenes) <= 6
        assert scenes[0].start == 0
        assert all(4.999 <= scene.seconds <= 10.001 for scene in scenes)
        assert all(before.end == after.start for before, after in pairwise(scenes))
        for scene in scenes:
            assert scene.what in OBJECTS
            assert scene.colour in COLOURS
            assert scene.place in PLACES
            assert scene.movement in MOVEMENTS


def test_every_attribute_occurs_in_both_splits():
    for split in ("train", "val"):
        videos = [Video(0, number) for number in range(DEFAULT_VIDEOS)]
        scenes = [s for video in videos if video.split == split for s in draw_scenes(0, video.number, video.fps)]
        assert {scene.what for scene in scenes} == set(OBJECTS)
        assert {scene.colour for scene in scenes} == set(COLOURS)
        assert {scene.place for scene in scenes} == set(PLACES)
        assert {scene.movement for scene in scenes} == set(MOVEMENTS)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_held_out_videos_give_at_least_100_windows(seed):
    held_out = [video for video in (Video(seed, n) for n in range(DEFAULT_VIDEOS)) if video.split == "val"]
    cues = [
        cue
        for video in held_out
        for cue in narrate(draw_scenes(seed, video.number, video.fps), seed, video.number, "val")
        if cue.text not in SOUNDS
    ]
    assert len(held_out) == DEFAULT_VIDEOS // 4
    assert len(cues) >= 120
    assert 0 < sum(cue.text in OFF_TOPIC for cue in cues) < len(cues) / 3


def test_all_forms_of_captions_occur_in_both_splits():
    videos = [Video(0, number) for number in range(DEFAULT_VIDEOS)]
    assert {(video.split, video.form) for video in videos} == {(s, f) for s in ("train", "val") for f in FORMS}


def test_shuffling_gives_every_training_video_anothers_captions_and_touches_no_other(corpus):
    shuffled = rows(shuffle_captions(corpus, SEED, VIDEOS))
    (corpus / "videos-shuffled.csv").unlink()
    original = rows(corpus / "videos.csv")
    pairs = list(zip(original, shuffled, strict=True))
    for before, after in pairs:
        assert (before["video_path"], before["split"]) == (after["video_path"], after["split"])
        assert (before["caption_path"] == after["caption_path"]) == (before["split"] == "val")
    taken = [after["caption_path"] for _, after in pairs]
    assert sorted(taken) == sorted(before["caption_path"] for before in original)


def test_record_says_what_was_drawn(corpus):
    record = json.loads((corpus / "corpus.json").read_text())
    assert (record["seed"], record["videos"]) == (SEED, VIDEOS)


def test_a_video_does_not_depend_on_how_many_there_are():
    few, many = (manifest_text([Video(0, n) for n in range(count)]).splitlines() for count in (8, 20))
    assert many[: len(few)] == few
