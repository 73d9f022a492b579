"""Captions kept as found: takedowns are left alone, numbers that are free are used."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from preprocess import keep
from preprocess.cli import app
from preprocess.inputs import InputVideo
from preprocess.keep import KeepResult, caption_failures, keep_captions
from shared.captions import read_captions
from shared.edit.remove import remove_videos
from shared.store import open_store, open_writer


@pytest.fixture
def videos(tmp_path: Path) -> list[InputVideo]:
    (tmp_path / "a.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:01.000\nhello\n")
    return [InputVideo(f"v{n}", tmp_path / "none.mp4", tmp_path / "a.vtt", "train", {}) for n in range(6)]


def test_removed_inputs_are_not_read_again(tmp_path: Path, videos: list[InputVideo]) -> None:
    with open_writer(tmp_path / "store") as writer:
        assert keep_captions(writer, videos) == KeepResult(6, 0, 0)
        remove_videos(writer, ["v2", "v5"])
        root = writer.root
        assert keep_captions(writer, videos) == KeepResult(0, 0, 4, ("v2", "v5"))
        assert writer.root == root
    kept = {video.video_id: video for video in read_captions(open_store(tmp_path / "store"))}
    assert [len(kept[f"v{n}"].tracks) for n in range(6)] == [1, 1, 0, 1, 1, 0]
    assert kept["v2"].failure is not None
    assert kept["v2"].failure.reason == "removed"


def test_a_shard_that_was_dropped_comes_back_under_its_number(
    tmp_path: Path, videos: list[InputVideo], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep, "SHARD_VIDEOS", 2)
    with open_writer(tmp_path / "store") as writer:
        keep_captions(writer, videos[:5])
        whole = writer.root
        writer.commit([], captions=(whole.captions[0], whole.captions[2]))
        assert keep_captions(writer, videos[:5]).new == 2
        assert writer.root == whole
        keep_captions(writer, videos)
        assert [ref.name[:5] for ref in writer.root.captions] == ["00000", "00001", "00002", "00003"]


def test_captions_that_could_not_be_kept_are_told_without_any_set(tmp_path: Path, videos: list[InputVideo]) -> None:
    lost = InputVideo("lost", tmp_path / "none.mp4", tmp_path / "none.vtt", None, {})
    with open_writer(tmp_path / "store") as writer:
        keep_captions(writer, [*videos, lost])
        remove_videos(writer, ["v2"])
        told = caption_failures(writer.path, writer.root.captions)
    assert [(video_id, failure.reason) for video_id, failure in told] == [("lost", "missing_file")]
    done = CliRunner().invoke(app, ["failures", str(tmp_path / "store")])
    assert "captions: lost: missing_file: none.vtt" in done.stdout
