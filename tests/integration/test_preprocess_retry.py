"""`--retry-failed`: what failed is tried again, by reason, and a video never has two records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from preprocess.config import PreprocessConfig
from preprocess.extraction import Progress
from preprocess.run import RunResult, run
from shared.errors import RequestError
from shared.store import open_store
from shared.verify import verify_store
from shared.words import counted

SILENT = Progress(note=lambda _: None, units=lambda *_: None)


def configured(small_media: Path, folder: Path, **decode: object) -> PreprocessConfig:
    return PreprocessConfig.model_validate(
        {
            "inputs": small_media / "videos.csv",
            "store": folder / "store",
            "streams": {"thumbs": {"kind": "frames", "size": 16}},
            "engine": "here",
            "shard_videos": 4,
            "decode": decode,
        }
    )


def make(config: PreprocessConfig, retry: str | None = None) -> RunResult:
    return run(config, SILENT, retry_failed=retry)


def failed(store: Path) -> list[tuple[str, str]]:
    return [(video, failure.reason) for video, failure in open_store(store).stream("thumbs").failures]


def test_a_video_that_fails_again_keeps_one_record(small_media: Path, tmp_path: Path) -> None:
    config = configured(small_media, tmp_path)
    assert make(config).extracted == 14
    assert make(config).did_nothing
    before = sorted(failed(config.store))
    roots = set()
    for _ in range(2):
        assert make(config, "all").extracted == 2
        assert sorted(failed(config.store)) == before == [("broken", "not_a_media_file"), ("missing", "missing_file")]
        assert verify_store(config.store) == []
        roots.add((config.store / "store.json").read_bytes())
    assert len(roots) == 1


def test_one_reason_is_retried_and_what_works_now_is_done(small_media: Path, tmp_path: Path) -> None:
    sizes = sorted(path.stat().st_size for path in small_media.glob("clip*.mp4"))
    strict = configured(small_media, tmp_path, max_bytes=sizes[5])
    make(strict)
    assert sum(reason == "too_large" for _, reason in failed(strict.store)) == sum(size > sizes[5] for size in sizes)
    config = configured(small_media, tmp_path)
    assert make(config).did_nothing
    assert make(config, "too_large").extracted == sum(size > sizes[5] for size in sizes)
    assert sorted(failed(config.store)) == [("broken", "not_a_media_file"), ("missing", "missing_file")]
    made, whole = open_store(config.store).stream("thumbs"), tmp_path / "whole"
    whole.mkdir()
    make(configured(small_media, whole))
    expected = open_store(whole / "store").stream("thumbs")
    for number, video in enumerate(expected.video_ids):
        assert (made.read(list(made.video_ids).index(video)) == expected.read(number)).all()
    assert verify_store(config.store) == []


def test_an_unknown_reason_is_refused_with_those_there_are(small_media: Path, tmp_path: Path) -> None:
    config = configured(small_media, tmp_path)
    with pytest.raises(RequestError, match="none has failed at all"):
        make(config, "timeout")
    make(config)
    with pytest.raises(RequestError, match="the reasons there are: missing_file, not_a_media_file"):
        make(config, "timeout")


@pytest.mark.parametrize(
    ("option", "extracted"),
    [(["--retry-failed"], 2), (["--retry-failed=missing_file"], 1), (["--retry-failed", "missing_file"], 1)],
)
def test_the_command_line(small_media: Path, tmp_path: Path, option: list[str], extracted: int) -> None:
    config = configured(small_media, tmp_path)
    make(config)
    path = tmp_path / "config.yaml"
    streams = "{thumbs: {kind: frames, size: 16}}"
    path.write_text(f"inputs: {config.inputs}\nstore: {config.store}\nstreams: {streams}\nshard_videos: 4\n")
    command = [sys.executable, "-m", "preprocess", "run", str(path), *option, "engine=here"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert f"extracting {counted(extracted, 'video')}" in done.stderr
    assert f"({extracted} failed before)" in done.stderr
