"""Finding media by name after one walk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from preprocess.adapters.media import ANY_KINDS, IMAGE_KINDS, VIDEO_KINDS, MediaIndex
from shared.errors import InputFileError


def made(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_names_with_and_without_extension(tmp_path: Path) -> None:
    media = MediaIndex(made(tmp_path, "a.mp4", "x/b.avi.mp4", "c.d.MKV", "e", "f.jpg", "g.mp4.part"), VIDEO_KINDS)
    assert media.find(["a"]) == media.find(["a.mp4"]) == media.find(["a.avi"]) == "a.mp4"
    assert media.find(["b.avi"]) == "x/b.avi.mp4"
    assert media.find(["c.d"]) == "c.d.MKV"
    assert [media.find([name]) for name in ("c", "e", "f", "f.jpg", "g", "A", "")] == [None] * 7
    assert media.find(["none", "a"]) == "a.mp4"


def test_of_several_the_choice_is_by_rule(tmp_path: Path) -> None:
    names = ["z/a.webm", "y/a.mp4", "x/a.mp4", "run/fast/a.webm", "a.avi"]
    media = MediaIndex(made(tmp_path, *names), VIDEO_KINDS)
    assert media.find(["a"]) == "x/a.mp4"
    assert media.find(["a.avi"]) == "a.avi"
    assert media.find(["a"], "fast") == media.find(["a"], "run/fast") == "run/fast/a.webm"
    assert media.find(["a"], "ast") == "x/a.mp4"
    assert media.find(["a.avi"], "fast") == "a.avi"
    assert media.several == 6


def test_links_are_followed_once_and_strange_files_left(tmp_path: Path) -> None:
    elsewhere = made(tmp_path / "elsewhere", "a.mp4", "deep/b.mp4")
    root = made(tmp_path / "root", "c.mp4")
    (root / "link").symlink_to(elsewhere)
    (root / "again").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(root)
    (root / "d.mp4").symlink_to(root / "nothing")
    os.mkfifo(root / "e.mp4")
    media = MediaIndex(root, ANY_KINDS)
    assert media.paths() == ["again/a.mp4", "again/deep/b.mp4", "c.mp4"]
    assert [entry.path for entry in media.unread] == ["d.mp4", "e.mp4"]


def test_kinds_are_apart(tmp_path: Path) -> None:
    made(tmp_path, "a.jpg", "a.mp4")
    assert MediaIndex(tmp_path, IMAGE_KINDS).find(["a"]) == "a.jpg"
    assert MediaIndex(tmp_path, VIDEO_KINDS).find(["a"]) == "a.mp4"


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    for path in (tmp_path / "none", made(tmp_path, "file") / "file"):
        with pytest.raises(InputFileError, match="cannot be read"):
            MediaIndex(path, VIDEO_KINDS)
