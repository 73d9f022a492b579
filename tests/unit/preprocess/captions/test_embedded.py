"""Subtitle streams inside media files: their texts and times, the choice among several, files that have none."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import imageio_ffmpeg
import pytest

from preprocess.captions.clean import CleanConfig, clean
from preprocess.captions.embedded import embedded_track
from preprocess.captions.read import read_track
from preprocess.captions.types import CaptionTrack
from shared.captions import KeptTrack
from shared.errors import Failure

SRT = "1\n00:00:00,500 --> 00:00:01,500\nopen <i>the</i> oven\n\n2\n00:00:02,000 --> 00:00:02,750\ncafé, {tongue}\n"
GERMAN = SRT.replace("open <i>the</i> oven", "Ofen auf")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`made(name, codec, offset)`: three seconds of video, with an English and a German stream."""
    folder = tmp_path_factory.mktemp("subtitles")
    (folder / "en.srt").write_text(SRT)
    (folder / "de.srt").write_text(GERMAN)

    def make(name: str, codec: str, offset: str = "0") -> Path:
        path = folder / name
        command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y"]
        command += ["-f", "lavfi", "-i", "color=size=32x32:rate=5:duration=3", "-i", folder / "en.srt"]
        command += ["-i", folder / "de.srt", "-map", "0", "-map", "1", "-map", "2", "-c:s", codec]
        command += ["-metadata:s:s:0", "language=eng", "-metadata:s:s:1", "language=deu"]
        command += ["-metadata:s:s:1", "title=Für Hörgeschädigte", "-output_ts_offset", offset, path]
        subprocess.run(command, check=True)
        return path

    return make


def cues(found: object) -> list[tuple[float, float, str]]:
    assert isinstance(found, KeptTrack)
    track = read_track(found.data, found.name)
    assert isinstance(track, CaptionTrack)
    assert track.skipped == ()
    captions = clean(track.cues, 3.0, CleanConfig()).captions
    return [(round(c.start, 3), round(c.end, 3), c.text) for c in captions]


WANTED = [(0.5, 1.5, "open the oven"), (2.0, 2.75, "café, {tongue}")]


@pytest.mark.parametrize(
    ("name", "codec", "offset"),
    [
        ("a.mp4", "mov_text", "0"),
        ("a.mkv", "subrip", "0"),
        ("w.mkv", "webvtt", "0"),
        ("late.mkv", "subrip", "7.5"),  # the file's own clock starts where the container does
    ],
)
def test_texts_and_times(made: Callable[..., Path], name: str, codec: str, offset: str) -> None:
    found = embedded_track(made(name, codec, offset), None, None, "abc")
    assert cues(found) == WANTED
    assert isinstance(found, KeptTrack)
    assert found.name == "stream-1.abc.json"
    assert f'"codec": "{codec}", "end"'.encode() in found.data
    assert b'"language": "eng"' in found.data


def test_ass_keeps_the_commas_of_its_text(made: Callable[..., Path]) -> None:
    assert [text for _, _, text in cues(embedded_track(made("a2.mkv", "ass"), "en", None, ""))] == [
        "open the oven", WANTED[1][2],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("language", "title"), [("de", None), ("deu", None), ("ger", None), ("de-AT", None), (None, "hörgesch")]
)
def test_a_stream_is_chosen(made: Callable[..., Path], language: str | None, title: str | None) -> None:
    found = embedded_track(made("choice.mkv", "subrip"), language, title, "")
    assert cues(found)[0][2] == "Ofen auf"


def test_what_was_asked_for_and_is_not_there(made: Callable[..., Path]) -> None:
    found = embedded_track(made("choice.mkv", "subrip"), "fr", None, "")
    assert isinstance(found, Failure)
    assert (found.reason, found.stage) == ("no_track", "captions")
    assert found.message == "choice.mkv holds subtitles eng '', deu 'Für Hörgeschädigte'; none has language fr"


def test_files_without_streams(tmp_path: Path, material_path: Callable[..., Path]) -> None:
    assert embedded_track(material_path("cases", "videos", "vfr.mp4"), None, None, "") is None
    for name, data, reason in [("none.mp4", None, "missing_file"), ("text.mp4", b"no video", "not_a_media_file")]:
        if data is not None:
            (tmp_path / name).write_bytes(data)
        found = embedded_track(tmp_path / name, None, None, "")
        assert isinstance(found, Failure)
        assert (found.reason, found.stage) == (reason, "captions")


def test_titles_of_the_file_need_not_be_utf8(made: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "latin.mkv"
    source = made("plain.mkv", "subrip")
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", source, "-map", "0", "-c", "copy"]
    subprocess.run([*command, "-metadata", b"title=caf\xe9", path], check=True)
    assert cues(embedded_track(path, "en", None, "id")) == WANTED
