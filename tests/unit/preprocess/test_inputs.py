from __future__ import annotations

from pathlib import Path

import pytest

from preprocess.inputs import read_inputs
from shared.errors import InputFileError


def write(folder: Path, text: str) -> Path:
    path = folder / "videos.csv"
    path.write_bytes(text.encode())
    return path


def test_columns_in_any_order_with_bom_crlf_and_attributes(tmp_path: Path) -> None:
    text = "\ufeffsplit,video_path,video_id,label\r\ntrain,a b.mp4,-id,run\r\n,ü.mp4,x,\r\n"
    first, second = read_inputs(write(tmp_path, text))
    assert (first.video_id, first.video_path, first.split, first.attributes) == (
        "-id",
        tmp_path / "a b.mp4",
        "train",
        {"label": "run"},
    )
    assert (second.split, second.caption_path, second.attributes, second.failure) == (None, None, {}, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("video_id\na\n", "no column 'video_path'"),
        ("video_id,video_path\n", "holds no videos"),
        ("video_id,video_path\na,x\na,y\n", "line 3: video_id 'a' stands in line 2 already"),
        ("video_id,video_path\n,x\n", "line 2: video_id ''"),
        ("video_id,video_path\n a,x\n", "without spaces around it"),
        ("video_id,video_path\na\n", "line 2 has more or fewer fields"),
        ("video_id,video_path\na,b,c\n", "line 2 has more or fewer fields"),
        ("video_id,video_path,split,split\na,b,c,d\n", "names a column twice"),
        ("video_id,video_path,split\na,b,tr ain\n", "line 2: split 'tr ain': expected letters"),
        ("video_id,video_path,split\na,b,../val\n", "line 2: split '../val'"),
        ("video_id,video_path,split\na,b,train\nc,d,\ne,f,Train\n", "line 4: split 'Train', and 'train' above"),
        ('video_id,video_path\na,"b\n', "cannot be read as UTF-8 CSV"),
    ],
)
def test_a_manifest_that_is_none_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputFileError, match=message):
        read_inputs(write(tmp_path, text))


def test_missing_manifest_and_other_encodings(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="does not exist"):
        read_inputs(tmp_path / "none.csv")
    path = tmp_path / "latin.csv"
    path.write_bytes("video_id,video_path\né,x\n".encode("latin1"))
    with pytest.raises(InputFileError, match="UTF-8"):
        read_inputs(path)


def test_a_path_longer_than_any_file_name_is_a_missing_file(tmp_path: Path) -> None:
    (video,) = read_inputs(write(tmp_path, f"video_id,video_path\na,{'x' * 300}\n"))
    assert video.failure is not None
    assert video.failure.reason == "missing_file"


def test_paths_may_not_leave_the_root(tmp_path: Path) -> None:
    inside = tmp_path / "data"
    inside.mkdir()
    (tmp_path / "secret.mp4").touch()
    (inside / "link.mp4").symlink_to(tmp_path / "secret.mp4")
    manifest = write(
        inside, "video_id,video_path,caption_path\na,../secret.mp4,\nb,/etc/passwd,\nc,link.mp4,../x.vtt\nd,ok,\n"
    )
    videos = read_inputs(manifest)
    assert [video.failure.reason if video.failure else None for video in videos] == ["outside_root"] * 3 + [None]
    assert videos[2].caption_failure is not None
    assert all(video.failure is None for video in read_inputs(manifest, root=tmp_path) if video.video_id != "b")


def test_paths_that_are_none_are_failures_of_their_video(tmp_path: Path) -> None:
    videos = read_inputs(write(tmp_path, "video_id,video_path\na,\nb,x\0y\nc," + "n" * 5000 + "\n"))
    assert [video.failure is not None for video in videos[:2]] == [True, True]


@pytest.mark.parametrize(
    ("header", "message"),
    [("video_id,video_path,captions_path", "is 'caption_path' meant"), ("video_id;video_path", "not semicolons")],
)
def test_mistyped_headers_are_told(tmp_path: Path, header: str, message: str) -> None:
    with pytest.raises(InputFileError, match=message):
        read_inputs(write(tmp_path, header + "\na,b,c\n"))
