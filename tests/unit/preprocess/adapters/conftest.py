"""Runs an adapter on files written for the test, and checks what holds for every one."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from preprocess.adapters.adapt import AdaptResult, adapt
from preprocess.captions.read import read_track
from preprocess.captions.types import CaptionTrack
from preprocess.inputs import read_inputs


@dataclass
class Adapted:
    """videos: manifest rows by id. captions: (start, end, text) by id. missing: rows of the list of what is missing."""

    result: AdaptResult
    videos: dict[str, dict[str, str]]
    captions: dict[str, list[tuple[float, float, str]]]
    missing: list[dict[str, str]]

    def reasons(self) -> dict[str, list[str]]:
        """Places by reason."""
        found: dict[str, list[str]] = {}
        for row in self.missing:
            found.setdefault(row["reason"], []).append(f"{row['file']} {row['place']}")
        return found


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


@pytest.fixture
def run_adapter(tmp_path: Path) -> Callable[..., Adapted]:
    """`run_adapter("didemo", {"train_data.json": text}, media=["a.mp4"], rows=21)`: files written, run, checked.

    rows: how many rows the index has, all of which must be accounted for.
    """

    def run(
        dataset: str,
        index: Mapping[str, str | bytes],
        *,
        media: Iterable[str],
        rows: int,
        captions: Path | None = None,
        fold: int | None = None,
        folder: str = "",
    ) -> Adapted:
        for name in media:
            touch(tmp_path / "data" / name)
        paths = [tmp_path / "index" / name for name in index]
        for path, content in zip(paths, index.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        given = [tmp_path / "index" / folder] if folder else paths
        manifest = tmp_path / "data" / "videos.csv"
        result = adapt(dataset, given, tmp_path / "data", manifest, captions, fold)
        return check(result, rows)

    return run


@pytest.fixture
def check_adapted() -> Callable[[AdaptResult, int], Adapted]:
    """`check_adapted(result, rows)`: the same checks, for a result that the test made itself."""
    return check


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"media")


def check(result: AdaptResult, rows: int) -> Adapted:
    videos = {row["video_id"]: row for row in read_rows(result.manifest)}
    missing = read_rows(result.missing)
    assert result.rows == rows
    assert len(videos) == result.videos
    assert len(missing) == result.left_out.total()
    assert all(row["file"] and row["place"] and row["reason"] and row["message"] for row in missing)
    captions: dict[str, list[tuple[float, float, str]]] = {}
    # What an adapter writes, the next stage reads without a complaint.
    for video in read_inputs(result.manifest, root=result.root) if videos else []:
        assert video.failure is None
        assert video.caption_failure is None
        assert video.video_path.is_file()
        if video.caption_path is not None:
            track = read_track(video.caption_path.read_bytes(), video.caption_path.name)
            assert isinstance(track, CaptionTrack)
            assert track.skipped == ()
            captions[video.video_id] = [(cue.start, cue.end, cue.text) for cue in track.cues]
    assert len(captions) == result.with_captions
    return Adapted(result, videos, captions, missing)
