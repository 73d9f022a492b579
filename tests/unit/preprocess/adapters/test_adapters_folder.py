"""A plain folder of media with caption files beside them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from preprocess.adapters.adapt import adapt
from shared.errors import RequestError

VTT = "WEBVTT\n\n00:01.000 --> 00:02.000\nwords\n"


@pytest.fixture
def adapt_folder(tmp_path: Path, check_adapted: Any) -> Any:
    def run(files: dict[str, str], rows: int) -> Any:
        for name, text in files.items():
            path = tmp_path / "clips" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check_adapted(adapt("folder", [tmp_path / "clips"]), rows)

    return run


def test_media_with_captions_of_every_form(adapt_folder: Any) -> None:
    files = {f"clip {n}.{kind}": "media" for n, kind in enumerate(["mp4", "MKV", "webm", "avi", "jpg", "png"] * 3)}
    files |= {
        "clip 0.vtt": VTT,
        "clip 1.srt": "1\n00:00:01,000 --> 00:00:02,000\nwords\n",
        "clip 2.csv": "start,end,text\n1,2,words\n",
        "clip 3.txt": "  words for\nall of it ",
        "clip 4.de.vtt": VTT,
        "clip 4.en-US.vtt": VTT,
        "clip 5.fr.vtt": VTT,
        "clip 5.de.srt": VTT,
        "clip 6.vtt": VTT,
        "clip 6.en.vtt": VTT,
        "clip 7.txt": " \n",
        "gone.vtt": VTT,
        "gone.en.srt": VTT,
        "README.txt": "perhaps captions of a video that is not there",
        "nowhere.json": '{"start": [1], "end": [2], "text": ["words"]}',
        "stats.json": '{"count": 3}',
        "videos.csv": "an older manifest",
        "clip 8.info.json": "{}",
        "clip 8.json": '{"start": [1], "end": [2], "text": ["words"]}',
        "clip 9.json": '{"key": "000000009", "status": "success"}',
        "clip 9.en.txt": "words",
        "clip 10.nfo": "of the same name",
        "clip 11.csv": "a,b\n",
        "clip 12.txt": "00:01.000 --> 00:02.000 words",
    }
    done = adapt_folder(files, rows=18 + 10 + 1 + 2 + 6 + 2)
    assert {name: row["caption_path"] for name, row in done.videos.items() if row["caption_path"]} == {
        "clip 0": "clip 0.vtt",
        "clip 1": "clip 1.srt",
        "clip 2": "clip 2.csv",
        "clip 3": "clip 3.txt",
        "clip 4": "clip 4.en-US.vtt",
        "clip 5": "clip 5.fr.vtt",
        "clip 6": "clip 6.vtt",
        "clip 8": "clip 8.json",
        "clip 9": "clip 9.en.txt",
    }
    assert done.captions["clip 3"] == [(0.0, 86_400.0, "words for all of it")]
    assert done.reasons() == {
        "other_captions": ["clip 4.de.vtt file", "clip 5.de.srt file", "clip 6.en.vtt file"],
        "empty_file": ["clip 7.txt file"],
        "not_captions": ["clip 11.csv file", "clip 12.txt file", "clip 9.json file", "clip 10.nfo file"],
        "missing_media": ["README.txt file", "gone.vtt file", "gone.en.srt file", "nowhere.json file"],
    }
    assert done.result.kinds == {"media files": 18, "caption files": 20, "other files of the same names": 1}
    assert done.result.kinds_left == {"caption files": 11, "other files of the same names": 1}


def test_folders_inside_give_ids_and_splits(adapt_folder: Any) -> None:
    files = {f"{top}/deep.er/-{n}.mp4": "" for top in ("train", "Validation", "other") for n in range(7)}
    files |= {"train/deep.er/-0.webm": "", "top.mp4": "", "train/deep.er/-1.vtt": VTT, "other/-1.vtt": VTT}
    done = adapt_folder(files, rows=21 + 4)
    assert done.result.splits == {"train": 7, "val": 7, "": 8}
    assert done.videos["train/deep.er/-1"]["caption_path"] == "train/deep.er/-1.vtt"
    assert done.reasons() == {
        "duplicate": ["train/deep.er/-0.webm file"],
        "missing_media": ["other/-1.vtt file"],
    }


def test_a_second_run_does_not_take_its_own_files_for_captions(adapt_folder: Any) -> None:
    files = {"videos.mp4": "", "videos.txt": "a text", "missing.mp4": ""}
    first = adapt_folder(files, rows=3)
    # Now videos.csv, the manifest, has the name of a video.
    second = adapt_folder({}, rows=3)
    assert second.videos == first.videos
    assert second.missing == []


def test_captions_that_cannot_be_opened_are_listed(
    adapt_folder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def locked(path: Path, *args: Any, **options: Any) -> Any:
        if path.parent == tmp_path / "clips" and path.name in ("a.csv", "b.txt", "c.json"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *args, **options)

    for name in ("a.csv", "b.txt", "c.json"):
        (tmp_path / "clips").mkdir(exist_ok=True)
        (tmp_path / "clips" / name).touch()
    monkeypatch.setattr(Path, "open", locked)
    done = adapt_folder({"a.mp4": "", "b.mp4": "", "c.mp4": ""}, rows=6)
    assert done.reasons() == {"unreadable": ["a.csv file", "b.txt file", "c.json file"]}


def test_odd_names_are_listed_and_stop_nothing(adapt_folder: Any, tmp_path: Path) -> None:
    folder = tmp_path / "clips"
    folder.mkdir()
    for name in (b" led.mp4", b"new\nline.mp4", b"caf\xe9.mp4", b".hidden.mp4", b'a,"b".mp4', b"ok.mp4"):
        (folder / os.fsdecode(name)).write_bytes(b"media")
    (folder / "pipe.mp4").unlink(missing_ok=True)
    os.mkfifo(folder / "pipe.mp4")
    (folder / "loop").symlink_to(folder)
    (folder / "dangling.mp4").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "control")
    done = adapt_folder({}, rows=5 + 3)
    assert sorted(done.videos) == [".hidden", 'a,"b"', "ok"]
    assert {row["video_id"] for row in done.missing} == {" led", "new\nline", ""}
    assert done.reasons()["unreadable"] == ["caf\\udce9.mp4 entry", "dangling.mp4 entry", "pipe.mp4 entry"]


def test_entries_that_cannot_be_looked_at_are_listed(
    adapt_folder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "clips"
    (folder / "locked").mkdir(parents=True)
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "long").symlink_to("n" * 300)
    (folder / "not mounted").symlink_to(tmp_path / "nowhere")
    scandir = os.scandir

    def locked(path: Any) -> Any:
        if path == folder / "locked":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", locked)
    done = adapt_folder({"a.mp4": "", "z/b.mp4": ""}, rows=2 + 4)
    assert sorted(done.videos) == ["a", "z/b"]
    assert {row["file"]: row["message"] for row in done.missing} == {
        "long": "cannot be looked at: File name too long",
        "loop": "cannot be looked at: Too many levels of symbolic links",
        "not mounted": "cannot be looked at: No such file or directory",
        "locked/": "the folder cannot be read: Permission denied",
    }


def test_media_behind_links_need_a_root_that_holds_them(adapt_folder: Any, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    for name in ("deep/a.mp4", "b.mp4", "captions/c.vtt", "never/used.vtt"):
        (disk / name).parent.mkdir(parents=True, exist_ok=True)
        (disk / name).write_text(VTT)
    folder = tmp_path / "clips"
    (folder / "inside").mkdir(parents=True)
    (folder / "inside" / "link").symlink_to(folder)
    assert adapt_folder({"c.mp4": ""}, rows=1).result.root is None
    (folder / "c.vtt").symlink_to(disk / "captions" / "c.vtt")
    # What is read with this root (see `check`) fails for no video.
    assert adapt_folder({}, rows=2).result.root == tmp_path
    (folder / "c.vtt").unlink()
    (folder / "b.mp4").symlink_to(disk / "b.mp4")
    assert adapt_folder({}, rows=2).result.root == tmp_path
    (folder / "b.mp4").unlink()
    (folder / "more").symlink_to(disk / "deep")
    done = adapt_folder({}, rows=2)
    assert sorted(done.videos) == ["c", "more/a"]
    assert done.result.root == tmp_path


def test_it_takes_one_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for index, media in (([tmp_path / "a", tmp_path / "b"], None), ([tmp_path / "a"], tmp_path / "b")):
        with pytest.raises(RequestError, match="takes one folder"):
            adapt("folder", index, media)
