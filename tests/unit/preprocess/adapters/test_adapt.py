"""What holds for all adapters: requests that are wrong, output that is atomic and the same every time."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import ijson
import pytest

from preprocess.adapters import ADAPTERS
from preprocess.adapters.adapt import adapt
from preprocess.adapters.items import Item, Request, Text
from preprocess.adapters.output import AdaptOutput
from shared.errors import InputFileError, RequestError, StoppedEarly

HEADER = "key,vid_key,video_id,sentence\n"


def write(folder: Path, rows: int = 20, words: str = "words") -> Path:
    folder.mkdir(exist_ok=True)
    for n in range(rows):
        (folder / f"-v{n}.mp4").write_bytes(b"media")
    (folder / "msrvtt_test.csv").write_text(HEADER + "".join(f"r{n},m{n},-v{n},{words} {n}\n" for n in range(rows + 1)))
    return folder / "msrvtt_test.csv"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b")
    for folder in ("a", "b", "a"):
        adapt("msrvtt", [tmp_path / folder / "msrvtt_test.csv"])
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_captions_that_changed_get_a_new_folder_and_the_old_one_goes(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    adapt("msrvtt", [write(folder)])
    (folder / "other.captions-0123456789ab").mkdir()
    (folder / "videos.captions-mine").mkdir()
    before = {path.name for path in folder.glob("*.captions-*")}
    adapt("msrvtt", [write(folder, words="other words")])
    after = {path.name for path in folder.glob("*.captions-*")}
    assert len(before - after) == len(after - before) == 1
    assert {"other.captions-0123456789ab", "videos.captions-mine"} <= after


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text("start,end,text\n"),
        lambda path: path.unlink(),
        lambda path: path.with_name("more.csv").touch(),
    ],
)
def test_damaged_caption_files_are_mended(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    folder = tmp_path / "a"
    adapt("msrvtt", [write(folder)])
    whole = content(folder)
    damage(min(folder.glob("videos.captions-*/*/*.csv")))
    adapt("msrvtt", [folder / "msrvtt_test.csv"])
    assert content(folder) == whole


def test_long_and_odd_ids_name_caption_files(tmp_path: Path) -> None:
    ids = ["a/b", "x" * 240, "ü🍳" * 40, "..", "%2F", "a b"]
    with AdaptOutput(tmp_path / "x" / "videos.csv", ()) as output:
        for video_id in ids:
            own = output.add_captions(video_id, [Text(0.0, 1.0, "words")])
            output.add_video(video_id, "a.mp4", "", {}, own, True)
        output.finish()
    assert len(list((tmp_path / "x").glob("videos.captions-*/??/*.csv"))) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dataset": "imagenet"}, "no adapter for a data set 'imagenet'; there are folder, howto100m"),
        ({"index": []}, "names no index; expected MSRVTT_data.json"),
        ({"captions": Path("x")}, "takes no --captions; leave it out. It is for howto100m"),
        ({"fold": 1}, "takes no --fold; leave it out. It is for hmdb51, ucf101"),
        ({"manifest": Path("x.txt")}, "does not end|ends in .csv"),
        ({"media": Path("none")}, "folder of media none does not exist"),
        ({"index": [Path("none.csv")]}, "index none.csv does not exist"),
    ],
)
def test_wrong_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, object], message: str
) -> None:
    index = write(tmp_path / "a")
    monkeypatch.chdir(tmp_path / "a")
    before = content(tmp_path / "a")
    with pytest.raises(RequestError, match=message):
        adapt(**{"dataset": "msrvtt", "index": [index], "media": tmp_path / "a", **arguments})  # type: ignore[arg-type]
    assert content(tmp_path / "a") == before


def test_an_index_without_rows_is_none(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "test.csv").write_text(HEADER)
    for dataset, index in (("msrvtt", "test.csv"), ("folder", "empty")):
        with pytest.raises(InputFileError, match="holds no rows"):
            adapt(dataset, [tmp_path / index])
    assert sorted(content(tmp_path)) == ["test.csv"]


def test_the_index_is_not_overwritten(tmp_path: Path) -> None:
    index = write(tmp_path / "a")
    index = index.rename(index.with_name("videos.csv"))
    with pytest.raises(RequestError, match="would replace the index"):
        adapt("msrvtt", [index])
    with pytest.raises(RequestError, match="would replace the index"):
        adapt("msrvtt", [index], manifest=tmp_path / "a" / ".." / "a" / "videos.csv")


def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    index = write(tmp_path / "a")
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="cannot be written"):
        adapt("msrvtt", [index], manifest=tmp_path / "file" / "videos.csv")


def test_a_full_disk_stops_and_leaves_the_old_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = write(tmp_path / "a")
    adapt("msrvtt", [index])
    before = content(tmp_path / "a")

    def full(_self: Path, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write(tmp_path / "a", words="new")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoppedEarly, match="no space left"):
        adapt("msrvtt", [index])
    assert content(tmp_path / "a") == before | {"msrvtt_test.csv": index.read_bytes()}


@pytest.mark.parametrize("place", ["missing.csv", "manifest.csv", "captions"])
def test_killed_anywhere_the_manifest_is_the_old_one_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The renames are where it counts: stopped before each of them, and what the manifest names is there."""
    folder = tmp_path / "a"
    adapt("msrvtt", [write(folder)])
    old = (folder / "videos.csv").read_bytes()
    index = write(folder, words="new")
    with monkeypatch.context() as patch:
        for name in ("rename", "replace"):
            renamed = getattr(Path, name)

            def stop(self: Path, target: Path, renamed=renamed) -> Path:  # type: ignore[no-untyped-def]
                if self.name == place:
                    raise KeyboardInterrupt
                return renamed(self, target)  # type: ignore[no-any-return]

            patch.setattr(Path, name, stop)
        with pytest.raises(KeyboardInterrupt):
            adapt("msrvtt", [index])
    assert (folder / "videos.csv").read_bytes() == old
    named = {line.split(",")[2] for line in old.decode().splitlines()[1:]}
    assert all((folder / name).is_file() for name in named)
    adapt("msrvtt", [index])
    write(tmp_path / "b", words="new")
    adapt("msrvtt", [tmp_path / "b" / "msrvtt_test.csv"])
    assert content(folder) == content(tmp_path / "b")


def test_a_fault_in_the_middle_of_an_index_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = write(tmp_path / "a")
    read = ADAPTERS["msrvtt"].read

    def broken(request: Request) -> Iterator[Item]:
        yield from read(request)
        raise InputFileError("the second half is gone")

    monkeypatch.setitem(ADAPTERS, "msrvtt", type(ADAPTERS["msrvtt"])(broken, "", "", (), ("mp4",)))
    before = content(tmp_path / "a")
    with pytest.raises(InputFileError, match="second half"):
        adapt("msrvtt", [index])
    assert content(tmp_path / "a") == before


def test_what_no_manifest_can_hold_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The reader that ijson takes where its C library is absent lets lone surrogates through.
    monkeypatch.setattr(ijson, "items", ijson.get_backend("python").items)
    (tmp_path / "v.mp4").touch()
    odd = (
        {"split": "a/b"},
        {"category": "x" * 100_001},
        {"url": "\ud800"},
        {"video_id": " v"},
        {"video_id": "v" * 100_001},
    )
    videos = [{"video_id": "v", **change} for change in odd]
    for number, video in enumerate(videos):
        index = tmp_path / f"{number}.json"
        index.write_text(
            json.dumps({"videos": [video], "sentences": [{"video_id": video["video_id"], "caption": "a"}]})
        )
        result = adapt("msrvtt", [index], tmp_path)
        assert (result.videos, result.left_out) == (0, {"malformed": 2})


def test_one_process_at_a_time_writes_a_manifest(tmp_path: Path) -> None:
    index = write(tmp_path / "a")
    with AdaptOutput(tmp_path / "a" / "videos.csv", ()), pytest.raises(RequestError, match="by another process"):
        adapt("msrvtt", [index])
    # What a killed run left is in nobody's way.
    (tmp_path / "a" / ".videos.adapting" / "captions").mkdir(parents=True)
    (tmp_path / "a" / ".videos.adapting" / "rows.csv").touch()
    adapt("msrvtt", [index])
    assert not (tmp_path / "a" / ".videos.adapting").exists()


def test_media_outside_of_the_manifest_are_told(tmp_path: Path) -> None:
    index = write(tmp_path / "a")
    result = adapt("msrvtt", [index], manifest=tmp_path / "b" / "out.csv")
    assert result.root == tmp_path
    assert "../a/-v0.mp4" in result.manifest.read_text()
    assert result.missing == tmp_path / "b" / "out.missing.csv"


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "preprocess", "adapt", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_exit_codes_and_help(tmp_path: Path) -> None:
    index = write(tmp_path / "a")
    left_out = command("msrvtt", index)
    assert left_out.returncode == 1
    assert "videos.csv: 20 videos (20 test), 20 with captions" in left_out.stdout
    assert "21 rows of the index: 20 in the manifest, 1 left out\n  missing_media: 1" in left_out.stdout
    assert "clean: {rolling: false, overlaps: false}" in left_out.stdout
    assert left_out.stderr.startswith(f"left out: 1 of 21 rows; {tmp_path / 'a'}")
    (tmp_path / "a" / "-v20.mp4").touch()
    assert command("msrvtt", index).returncode == 0
    wrong = command("youcook2", index)
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False)
    assert "has the columns key, vid_key, video_id, sentence; expected end, start" in wrong.stderr
    shown = command("--help").stdout
    assert all(f"python -m preprocess adapt {adapter.example}" in shown for adapter in ADAPTERS.values())
