"""Every file of cases/videos, and the real corpus: outcome, frames, size, times and pixels."""

from __future__ import annotations

import csv
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import imageio_ffmpeg
import numpy as np
import pytest

from preprocess.decode import DecodeFailure, DecodeOptions, FrameBlock, Sampling, iterate_clips, open_video, probe

EVERY_FRAME = Sampling(fps=1000)
PIXEL_ERROR = 4.0  # grey levels on average over a frame
OK = [
    "animated.gif",
    "av1_video.mkv",
    "discard_first_keyframe.mp4",
    "h264_10bits.mp4",
    "h265_10bits.mp4",
    "name with spaces & ünïcode 🍳.mp4",
    "nasa_13013_rotated.mp4",
    "no_pts.avi",
    "one_frame.mp4",
    "sine_stereo_mp2.mpg",
    "test_non_zero_start.mp4",
    "testsrc2_mpeg4.mp4",
    "testsrc2_odd_height_and_width_vp9.mp4",
    "testsrc2_vp8.webm",
    "unordered.mov",
    "vfr.mp4",
    "video_180.mov",
    "video_90.mov",
]
FAILING = [
    "audio_only.mp4",
    "concat.mp4",
    "corrupted.mp4",
    "empty.mp4",
    "mid_corruption.mp4",
    "playlist.mp4",
    "text.mp4",
    "truncated.mkv",
    "truncated_faststart.mp4",
    "truncated_no_moov.mp4",
]
BACKENDS = ["auto", "decord", "pyav", "ffmpeg"]


@pytest.fixture(scope="module")
def table(material_path: Any) -> dict[str, dict[str, str]]:
    with material_path("cases", "videos.csv").open(encoding="utf-8", newline="") as file:
        return {row["file"]: row for row in csv.DictReader(file)}


def decode(path: Path, options: DecodeOptions, *samplings: Sampling, short_side: int | None = None) -> Any:
    """(info, index, time, frames) of everything that comes out."""
    blocks: list[FrameBlock] = []
    with open_video(path, samplings or [EVERY_FRAME], options, short_side) as video:
        blocks.extend(video)
    index, time, frames = (
        np.concatenate([getattr(block, name) for block in blocks]) for name in ("index_T", "time_T", "frames_THWC")
    )
    return video.info, index, time, frames


def test_the_table_and_the_lists_here_name_the_same_files(table: Any) -> None:
    assert {name for name, row in table.items() if row["outcome"] == "ok"} == set(OK)
    assert set(table) == {*OK, *FAILING}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OK)
def test_good_files_are_what_the_table_says(name: str, backend: str, table: Any, material_path: Any) -> None:
    row = table[name]
    info, index, time, frames = decode(material_path("cases", "videos", name), DecodeOptions(backend=backend))
    assert info.codec == row["codec"]
    assert info.frames == int(row["frames"])
    assert index.tolist() == list(range(info.frames))
    assert (info.width, info.height) == (int(row["shown_width"]), int(row["shown_height"]))
    assert frames.shape == (info.frames, info.height, info.width, 3)
    half = info.duration / info.frames / 2 + 1e-6
    assert time[0] == pytest.approx(float(row["first_s"]), abs=half)
    assert time[-1] == pytest.approx(float(row["last_s"]), abs=half)
    assert (np.diff(time) > 0).all()
    assert info.duration > time[-1]
    assert not info.partial


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FAILING)
def test_bad_files_fail_with_the_reason_of_the_table(name: str, backend: str, table: Any, material_path: Any) -> None:
    with pytest.raises(DecodeFailure) as caught:
        decode(material_path("cases", "videos", name), DecodeOptions(backend=backend))
    assert caught.value.failure.reason == table[name]["outcome"]
    assert caught.value.failure.stage == "decode"
    assert name in caught.value.failure.message


@pytest.mark.parametrize("fps", [2, 0.2])
@pytest.mark.parametrize("name", FAILING)
def test_bad_files_fail_whichever_frames_are_needed(name: str, fps: float, table: Any, material_path: Any) -> None:
    with pytest.raises(DecodeFailure) as caught:
        decode(material_path("cases", "videos", name), DecodeOptions(), Sampling(fps=fps))
    assert caught.value.failure.reason == table[name]["outcome"]


@pytest.mark.parametrize(
    ("name", "least"), [("mid_corruption.mp4", 124), ("truncated.mkv", 28), ("truncated_faststart.mp4", 25)]
)
def test_what_decodes_of_damaged_files_can_be_kept_and_is_marked(name: str, least: int, material_path: Any) -> None:
    for backend in BACKENDS:
        options = DecodeOptions(keep_partial=True, backend=backend)
        info, index, time, _ = decode(material_path("cases", "videos", name), options)
        assert info.partial
        assert info.why
        assert len(index) >= least
        assert (np.diff(index) > 0).all()
        assert (np.diff(time) > 0).all()


@pytest.mark.parametrize("backend", ["decord", "pyav", "ffmpeg"])
@pytest.mark.parametrize("name", OK)
def test_whole_frames_equal_those_of_plain_ffmpeg(name: str, backend: str, material_path: Any) -> None:
    """Plain: one ffmpeg command with none of our filters, flags or arithmetic."""
    path = material_path("cases", "videos", name)
    info, _, _, frames = decode(path, DecodeOptions(backend=backend))
    plain = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", f"file:{path}", "-map", "0:v:0"]
    plain += ["-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(plain, check=True, capture_output=True).stdout
    expected = np.frombuffer(raw, np.uint8).reshape(info.frames, info.height, info.width, 3)
    error = np.abs(frames.astype(np.int16) - expected).mean(axis=(1, 2, 3))
    assert error.max() <= PIXEL_ERROR


@pytest.mark.parametrize("name", ["nasa_13013_rotated.mp4", "h265_10bits.mp4", "testsrc2_odd_height_and_width_vp9.mp4"])
def test_scaled_frames_agree_between_backends(name: str, material_path: Any) -> None:
    path = material_path("cases", "videos", name)
    by_decord = decode(path, DecodeOptions(backend="decord"), short_side=100)
    by_ffmpeg = decode(path, DecodeOptions(backend="ffmpeg"), short_side=100)
    assert by_decord[0].backend == "decord"
    assert by_decord[3].shape == by_ffmpeg[3].shape
    assert min(by_decord[3].shape[1:3]) == 100
    assert np.abs(by_decord[3].astype(np.int16) - by_ffmpeg[3]).mean() <= PIXEL_ERROR


def test_frames_are_right_side_up_by_an_independent_decoder(material_path: Any) -> None:
    for name, turns in (("video_90.mov", -1), ("video_180.mov", 2)):
        path = material_path("cases", "videos", name)
        with av.open(str(path)) as container:
            coded = next(container.decode(video=0)).to_ndarray(format="rgb24")
        _, _, _, frames = decode(path, DecodeOptions())
        assert np.abs(frames[0].astype(np.int16) - np.rot90(coded, turns)).mean() < PIXEL_ERROR


def test_the_first_video_stream_is_taken_by_every_backend(material_path: Any) -> None:
    path = material_path("corpus", "videos", "nasa_13013.mp4")
    for backend in BACKENDS:
        info, index, _, _ = decode(path, DecodeOptions(backend=backend), short_side=64)
        assert (info.stream, len(index)) == (0, 325)


def test_a_playlist_in_disguise_reaches_nothing_that_it_names(tmp_path: Path, material_path: Any) -> None:
    named = tmp_path / "named.mp4"
    shutil.copyfile(material_path("cases", "videos", "one_frame.mp4"), named)
    accessed = named.stat().st_atime_ns
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        host = f"http://127.0.0.1:{server.getsockname()[1]}/a.ts"
        for text in (
            f"#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n{named}\n#EXTINF:4,\n{host}\n#EXT-X-ENDLIST\n",
            f"ffconcat version 1.0\nfile '{named}'\nfile '{host}'\n",
        ):
            disguise = tmp_path / "video.mp4"
            disguise.write_text(text)
            for backend in BACKENDS:
                with pytest.raises(DecodeFailure) as caught:
                    open_video(disguise, [Sampling()], DecodeOptions(backend=backend))
                assert caught.value.reason == "not_a_media_file"
        with pytest.raises(TimeoutError):
            server.accept()
    assert named.stat().st_atime_ns == accessed


@pytest.mark.parametrize("name", ["-y.mp4", "100%d.mp4", "a:b.mp4", "concat:x|y.mp4", "file:z.mp4", "süß 'n\" 🍳.mp4"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_names_are_only_names(
    name: str, backend: str, tmp_path: Path, material_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copyfile(material_path("cases", "videos", "one_frame.mp4"), tmp_path / name)
    monkeypatch.chdir(tmp_path)
    info, *_ = decode(Path(name), DecodeOptions(backend=backend))
    assert info.frames == 1


@pytest.mark.parametrize(
    "limit", [{"max_seconds": 1.0}, {"max_frames": 50}, {"max_pixels": 1000}, {"max_bytes": 1000}], ids=str
)
@pytest.mark.parametrize("name", ["vfr.mp4", "no_pts.avi", "sine_stereo_mp2.mpg"])
def test_what_exceeds_a_limit_is_refused_before_it_is_decoded(
    limit: dict[str, float], name: str, material_path: Any
) -> None:
    with pytest.raises(DecodeFailure) as caught:
        open_video(material_path("cases", "videos", name), [Sampling()], DecodeOptions(**limit))
    assert caught.value.reason == "too_large"
    assert next(iter(limit)) in caught.value.failure.message


def test_a_missing_file_and_a_folder_are_missing_files(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.mp4", tmp_path):
        with pytest.raises(DecodeFailure) as caught:
            probe(path)
        assert caught.value.reason == "missing_file"


def test_the_corpus_decodes_at_one_frame_a_second(material_path: Any) -> None:
    with material_path("corpus", "videos.csv").open(encoding="utf-8", newline="") as file:
        paths = [material_path("corpus", row["video_path"]) for row in csv.DictReader(file)]
    assert len(paths) == 32
    for path in paths:
        with open_video(path, [Sampling(fps=1)], DecodeOptions(), 64) as video:
            rows = [clip for _, clip in iterate_clips(video)]
        assert [row.start for row in rows] == list(range(len(rows)))
        assert rows[-1].end == video.info.duration
        assert len(rows) - 1 < video.info.duration <= len(rows)
        for row in rows:
            assert -6e-4 <= row.start - row.time_T[0] < 0.2 or row.index_T[0] == 0


def copies(path: Path, options: DecodeOptions, samplings: list[Sampling]) -> list[list[Any]]:
    rows: list[list[Any]] = [[] for _ in samplings]
    with open_video(path, samplings, options, 64) as video:
        for number, clip in iterate_clips(video):
            rows[number].append(clip)
    return rows


@pytest.mark.parametrize("name", ["vfr.mp4", "no_pts.avi", "one_frame.mp4"])
def test_samplings_in_one_pass_give_the_rows_of_each_alone(name: str, material_path: Any) -> None:
    path = material_path("cases", "videos", name)
    samplings = [
        Sampling(fps=2),
        Sampling(strategy="dense", fps=10, frames=8, hop=0.5),
        Sampling(strategy="uniform", frames=5),
        Sampling(strategy="keyframes"),
    ]
    together = copies(path, DecodeOptions(), samplings)
    for sampling, rows in zip(samplings, together, strict=True):
        for backend in ("decord", "ffmpeg"):
            (alone,) = copies(path, DecodeOptions(backend=backend), [sampling])
            assert len(alone) == len(rows) > 0
            for one, other in zip(alone, rows, strict=True):
                assert (one.start, one.end, one.valid) == (other.start, other.end, other.valid)
                assert one.index_T.tolist() == other.index_T.tolist()
                assert np.abs(one.frames_THWC.astype(np.int16) - other.frames_THWC).mean() <= PIXEL_ERROR


def test_leaving_early_ends_the_process_and_leaves_none_behind(material_path: Any) -> None:
    path = material_path("corpus", "videos", "world.mp4")
    with open_video(path, [EVERY_FRAME], DecodeOptions(backend="ffmpeg", block_bytes=1)) as video:
        next(iter(video))
    children = [file.read_text() for file in Path("/proc/self/task").glob("*/children")]
    assert "".join(children).strip() == ""


def blocks_of(path: Path, block_bytes: int) -> Iterator[FrameBlock]:
    with open_video(path, [EVERY_FRAME], DecodeOptions(block_bytes=block_bytes), 64) as video:
        yield from video


@pytest.mark.parametrize("block_bytes", [1, 100_000, 10**9])
def test_blocks_are_bounded_whatever_the_length(block_bytes: int, material_path: Any) -> None:
    path = material_path("cases", "videos", "no_pts.avi")
    sizes = [block.frames_THWC.nbytes for block in blocks_of(path, block_bytes)]
    frame = 114 * 64 * 3
    assert sum(sizes) == 132 * frame
    assert max(sizes) <= max(frame, min(block_bytes, 64 * frame))
