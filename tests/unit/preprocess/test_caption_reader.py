"""Captions from one JSON file for all videos and from inside media files, kept in a store."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import imageio_ffmpeg
import pytest
from pydantic import ValidationError

from preprocess import caption_reader
from preprocess.caption_reader import CaptionsConfig
from preprocess.captions import embedded
from preprocess.inputs import InputVideo
from preprocess.keep import KeepResult, keep_captions
from shared.captions import KeptCaptions, read_captions
from shared.errors import Failure, InputFileError
from shared.fingerprint import hash_file
from shared.schema import Source
from shared.store import open_store, open_writer

ENTRY = '{"start" : [0.50], "end": [1], "text": ["caf\\u00e9"]}'


def video(video_id: str, path: Path, caption: Path | None = None, failure: Failure | None = None) -> InputVideo:
    return InputVideo(video_id, path, caption, "train", {}, failure)


def keep(store: Path, videos: list[InputVideo], config: CaptionsConfig) -> tuple[KeepResult, dict[str, KeptCaptions]]:
    def source(path: Path) -> Source | None:
        return Source(bytes=path.stat().st_size, xxh3=hash_file(path)) if path.is_file() else None

    with open_writer(store) as writer:
        result = keep_captions(writer, videos, config, source)
    return result, {kept.video_id: kept for kept in read_captions(open_store(store))}


def test_entries_are_kept_as_found_and_files_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.vtt").write_text("WEBVTT\n")
    content = f'{{"-b": {ENTRY}, "other": {ENTRY}, "own": {ENTRY}, "long": "{"x" * 300}", "a": {ENTRY}}}'
    (tmp_path / "caption.json").write_text(content)
    monkeypatch.setattr(caption_reader, "MAX_CAPTION_BYTES", 200)
    videos = [video(name, tmp_path / "none.mp4") for name in ("a", "-b", "silent", "long")]
    videos.append(video("own", tmp_path / "none.mp4", tmp_path / "own.vtt"))
    config = CaptionsConfig(json_file=tmp_path / "caption.json")
    result, kept = keep(tmp_path / "store", videos, config)
    assert result == KeepResult(5, 0, 0)
    assert {name: [(t.name, t.data) for t in one.tracks] for name, one in kept.items()} == {
        "a": [("caption.json", ENTRY.encode())],
        "-b": [("caption.json", ENTRY.encode())],
        "silent": [],
        "long": [],
        "own": [("own.vtt", b"WEBVTT\n")],
    }
    assert kept["long"].failure is not None
    assert (kept["long"].failure.reason, kept["long"].failure.stage) == ("too_large", "captions")
    assert keep(tmp_path / "store", videos, config)[0] == KeepResult(0, 0, 5)
    (tmp_path / "caption.json").write_text(content.replace("0.50", "0.5", 1))
    assert keep(tmp_path / "store", videos, config)[0] == KeepResult(0, 1, 4)


def test_an_entry_that_stands_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "caption.json").write_text(f'{{"a": {ENTRY}, "a": {ENTRY}}}')
    config = CaptionsConfig(json_file=tmp_path / "caption.json")
    with pytest.raises(InputFileError, match="two entries 'a'"):
        keep(tmp_path / "store", [video("a", tmp_path / "none.mp4")], config)
    assert not open_store(tmp_path / "store").root.captions


def with_subtitles(folder: Path, text: str) -> Path:
    (folder / "a.srt").write_text(f"1\n00:00:00,500 --> 00:00:01,000\n{text}\n")
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", "-f", "lavfi", "-i"]
    command += ["color=size=32x32:rate=5:duration=1", "-i", str(folder / "a.srt"), str(folder / "a.mkv")]
    subprocess.run(command, check=True)
    return folder / "a.mkv"


def test_streams_of_media_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    media = with_subtitles(tmp_path, "hello")
    outside = Failure("outside_root", "input", "leaves the root")
    videos = [video("a", media), video("gone", tmp_path / "none.mkv"), video("out", media, failure=outside)]
    config = CaptionsConfig(embedded=True)
    assert keep(tmp_path / "store", videos, CaptionsConfig())[1]["a"].tracks == ()
    result, kept = keep(tmp_path / "store", videos, config)
    assert result == KeepResult(0, 3, 0)
    assert json.loads(kept["a"].tracks[0].data)["text"] == ["hello"]
    failures = {name: one.failure.reason for name, one in kept.items() if one.failure}
    assert failures == {"gone": "missing_file", "out": "outside_root"}
    with_subtitles(tmp_path, "hello again")
    result, kept = keep(tmp_path / "store", videos, config)
    assert result == KeepResult(0, 1, 2)
    assert json.loads(kept["a"].tracks[0].data)["text"] == ["hello again"]
    # What the store has of this very file is not read out again, and outlives the file.
    monkeypatch.setattr(embedded, "embedded_track", None)
    assert keep(tmp_path / "store", videos[:1], config)[0] == KeepResult(0, 0, 1, others=("gone", "out"))
    monkeypatch.undo()
    media.unlink()
    result, kept = keep(tmp_path / "store", videos[:1], config)
    assert result == KeepResult(0, 0, 1, others=("gone", "out"))
    assert kept["a"].tracks


def test_a_choice_without_streams_to_choose_from_is_refused() -> None:
    with pytest.raises(ValidationError, match="embedded: true"):
        CaptionsConfig(language="en")
