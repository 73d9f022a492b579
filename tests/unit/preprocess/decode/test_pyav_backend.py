"""PyAV's frames are those of ffmpeg's own program, bit for bit, and what nobody needs is not decoded."""

from __future__ import annotations

import subprocess
from pathlib import Path

import av
import imageio_ffmpeg
import numpy as np
import pytest

from preprocess.decode import DecodeFailure, DecodeOptions, Sampling, open_video
from preprocess.decode.packets import PacketTable
from preprocess.decode.pyav_backend import PyavFrames, needless_packets

SOURCE = ["-f", "lavfi", "-i", "testsrc2=s=160x96:r=25:d=2"]
H264 = ["-c:v", "libx264", "-g", "25", "-bf", "3", "-x264-params", "b-adapt=0"]
COLOURS = {
    "BT.601": [*H264, "-pix_fmt", "yuv420p"],
    "BT.709": ["-vf", "scale=out_color_matrix=bt709", *H264, "-pix_fmt", "yuv420p", "-colorspace", "bt709"],
    "full range": ["-vf", "scale=out_range=pc", *H264, "-pix_fmt", "yuvj420p", "-color_range", "pc"],
    "10 bit": [*H264, "-pix_fmt", "yuv420p10le"],
    "4:4:4": [*H264, "-pix_fmt", "yuv444p"],
}


def encode(path: Path, *arguments: str) -> Path:
    subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *arguments, str(path)], check=True)
    return path


def frames_of(path: Path, backend: str, fps: float, short_side: int | None = 48) -> tuple[str, list[int], np.ndarray]:
    options = DecodeOptions.model_validate({"backend": backend})
    with open_video(path, [Sampling(fps=fps)], options, short_side) as video:
        blocks = list(video)
    numbers = [int(index) for block in blocks for index in block.index_T]
    return video.info.backend, numbers, np.concatenate([block.frames_THWC for block in blocks])


@pytest.mark.parametrize("colours", list(COLOURS))
def test_the_same_pixels_as_ffmpeg(tmp_path: Path, colours: str) -> None:
    path = encode(tmp_path / "video.mp4", *SOURCE, *COLOURS[colours])
    backend, numbers, frames_THWC = frames_of(path, "pyav", fps=3)
    _, expected, expected_THWC = frames_of(path, "ffmpeg", fps=3)
    assert (backend, numbers) == ("pyav", expected)
    assert np.array_equal(frames_THWC, expected_THWC)


@pytest.mark.parametrize("turn", ["0", "90", "180", "270"])
def test_turned_as_ffmpeg_turns(tmp_path: Path, turn: str) -> None:
    plain = encode(tmp_path / "plain.mp4", *SOURCE, *H264)
    path = encode(tmp_path / "turned.mp4", "-display_rotation", turn, "-i", str(plain), "-c", "copy")
    for short_side in (None, 31):
        backend, _, frames_THWC = frames_of(path, "pyav", fps=1, short_side=short_side)
        assert backend == "pyav"
        assert np.array_equal(frames_THWC, frames_of(path, "ffmpeg", fps=1, short_side=short_side)[2])


def test_what_nobody_needs_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = encode(tmp_path / "video.mp4", *SOURCE, *H264)
    decoded = []

    class Counted(PyavFrames):
        def _decoded(self):
            for frame in super()._decoded():
                decoded.append(frame.pts)
                yield frame

    monkeypatch.setattr("preprocess.decode.media_source.FAST", {"pyav": Counted})
    _, numbers, frames_THWC = frames_of(path, "pyav", fps=2)
    assert numbers == [0, 12, 25, 37]
    assert len(decoded) < 35, "50 frames, of every four B-frames and P-frames two are referred to by none"
    assert np.array_equal(frames_THWC, frames_of(path, "ffmpeg", fps=2)[2])


def test_a_picture_that_changes_its_size_is_scaled_on(tmp_path: Path) -> None:
    parts = []
    for width in (160, 128):
        source = ["-f", "lavfi", "-i", f"testsrc2=s={width}x96:r=10:d=1"]
        parts.append(encode(tmp_path / f"{width}.h264", *source, *H264, "-bf", "0"))
    joined = tmp_path / "joined.h264"
    joined.write_bytes(b"".join(part.read_bytes() for part in parts))
    path = encode(tmp_path / "video.mkv", "-r", "10", "-i", str(joined), "-c", "copy")
    with av.open(str(path)) as container:
        assert {frame.width for frame in container.decode(video=0)} == {160, 128}
    backend, numbers, frames_THWC = frames_of(path, "pyav", fps=10)
    assert (backend, frames_THWC.shape[1:]) == ("pyav", (48, 80, 3))
    _, expected, expected_THWC = frames_of(path, "ffmpeg", fps=10)
    assert numbers == expected
    assert np.array_equal(frames_THWC, expected_THWC)


def test_damage_is_left_to_ffmpeg_to_judge(tmp_path: Path) -> None:
    path = encode(tmp_path / "video.mp4", *SOURCE, *H264)
    with av.open(str(path)) as container:
        packets = [
            (packet.pos, packet.size) for packet in container.demux(video=0) if packet.size and packet.is_keyframe
        ]
    position, size = packets[1]
    data = bytearray(path.read_bytes())
    data[position + size // 3 : position + 2 * size // 3] = bytes(size // 3 + 1)[: 2 * size // 3 - size // 3]
    path.write_bytes(data)
    options = DecodeOptions(backend="pyav", keep_partial=True)
    with open_video(path, [Sampling(fps=5)], options) as video:
        times = [float(time) for block in video for time in block.time_T]
    assert (video.info.backend, video.info.partial) == ("pyav+ffmpeg", True)
    assert times == sorted(set(times))


def table(places: list[int], anew: list[int], hidden: int = 0) -> PacketTable:
    count = len(places)
    begins = np.isin(np.arange(count), anew)
    return PacketTable(np.arange(count) * 10, begins, np.array(places), begins, 10, count + hidden, hidden, "")


@pytest.mark.parametrize(
    ("places", "anew", "needed", "skipped"),
    [
        ([0, 1, 2, 3, 4, 5], [0, 3], [0], [1, 2, 3, 4, 5]),
        ([0, 1, 2, 3, 4, 5], [0, 3], [0, 4], [1, 2, 5]),
        ([0, 1, 2, 3, 4, 5], [0], [0, 4], [5]),
        ([0, 2, 1, 3, 5, 4], [0, 3], [0, 1, 4], []),  # stored behind what is shown after it
        ([0, 2, 1, 3, 5, 4], [0, 3], [0, 5], [1, 2, 5]),
        ([0, 1, 3, 2, 4, 5], [0, 3], [0], [1, 2, 3, 4, 5]),  # 3 is stored before 2, which is shown before it:
        ([0, 1, 3, 2, 4, 5], [0, 3], [0, 4], [5]),  # no stretch begins with 3
        ([0, 1, 2, 3], [], [0, 2], []),
    ],
)
def test_needless_packets(places: list[int], anew: list[int], needed: list[int], skipped: list[int]) -> None:
    found = needless_packets(table(places, anew), np.array(needed))
    assert np.flatnonzero(found).tolist() == skipped


def test_no_packet_is_needless_where_places_are_unknown() -> None:
    assert not needless_packets(table([0, 1, 2, 3], [0, 2], hidden=1), np.array([0])).any()


def test_damage_in_what_is_left_out_is_noticed(tmp_path: Path) -> None:
    path = encode(tmp_path / "video.mp4", *SOURCE, *H264)
    with av.open(str(path)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    data = bytearray(path.read_bytes())
    position = packets[-3][0]
    data[position : position + 200] = bytes(byte ^ 0xFF for byte in data[position : position + 200])
    path.write_bytes(data)
    with pytest.raises(DecodeFailure, match="packets do not decode") as caught:
        frames_of(path, "pyav", fps=0.6)
    assert caught.value.reason == "corrupt"


def test_cropped_to_the_pixel_as_ffmpeg_crops(tmp_path: Path) -> None:
    plain = encode(tmp_path / "plain.mp4", *SOURCE, *H264)
    crop = "h264_metadata=crop_left=10:crop_right=20:crop_top=4"
    path = encode(tmp_path / "cropped.mp4", "-i", str(plain), "-c", "copy", "-bsf:v", crop)
    backend, _, frames_THWC = frames_of(path, "pyav", fps=5, short_side=None)
    assert (backend, frames_THWC.shape[1:]) == ("pyav", (92, 130, 3))
    assert np.array_equal(frames_THWC, frames_of(path, "ffmpeg", fps=5, short_side=None)[2])
