"""The right frame, not its neighbour: generated videos carry each frame's number as a bar code.

Containers x codecs x B-frames x {constant rate, variable rate, late video, shifted clock, edit list, rotation, odd
size, 10 bit, two video streams}, each with every backend. The default run takes a seeded sample, the full run all.
"""

from __future__ import annotations

import random
import subprocess
from bisect import bisect_right
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from preprocess.decode import DecodeOptions, Sampling, iterate_clips, open_video

WIDTH, HEIGHT, FRAMES, BITS, RATE = 192, 108, 75, 12, 25
LATE = 14 / RATE  # seconds that the video starts after the sound
CUT = 1.0  # seconds cut off without encoding again; no multiple of the distance of key frames
H264 = ["-c:v", "libx264", "-preset", "veryfast", "-g", "20"]
HEVC = ["-c:v", "libx265", "-preset", "ultrafast", "-x265-params"]
VP9 = ["-c:v", "libvpx-vp9", "-b:v", "1M", "-cpu-used", "8"]
VP8 = ["-c:v", "libvpx", "-b:v", "1M", "-cpu-used", "8"]
HIDDEN = ["-deadline", "good", "-g", "40", "-auto-alt-ref", "1", "-lag-in-frames", "16"]
CODECS = {
    "h264": [*H264, "-bf", "0"],
    "h264-b": [*H264, "-bf", "3", "-x264-params", "b-pyramid=normal:b-adapt=0"],
    "h264-open": [*H264, "-bf", "3", "-x264-params", "open-gop=1:b-adapt=0"],
    "h264-refresh": [*H264, "-bf", "0", "-x264-params", "intra-refresh=1"],
    "hevc": [*HEVC, "log-level=error:keyint=20:bframes=0"],
    "hevc-b": [*HEVC, "log-level=error:keyint=20:bframes=4:open-gop=1:b-adapt=0"],
    "vp9": [*VP9, "-deadline", "realtime", "-g", "20"],
    "vp9-hidden": [*VP9, *HIDDEN],
    "vp8": [*VP8, "-deadline", "realtime", "-g", "20"],
    "vp8-hidden": [*VP8, *HIDDEN],
    "av1": ["-c:v", "libsvtav1", "-preset", "10", "-crf", "20", "-g", "20"],
    "mpeg4": ["-c:v", "mpeg4", "-q:v", "3", "-g", "20"],
    "mpeg4-b": ["-c:v", "mpeg4", "-q:v", "3", "-g", "20", "-bf", "2"],
    "mpeg1": ["-c:v", "mpeg1video", "-q:v", "3", "-g", "15", "-bf", "2"],
    "mpeg2": ["-c:v", "mpeg2video", "-q:v", "3", "-g", "15", "-bf", "2"],
    "mjpeg": ["-c:v", "mjpeg", "-q:v", "3", "-pix_fmt", "yuvj420p"],
    "flv1": ["-c:v", "flv1", "-q:v", "3", "-g", "20"],
    "wmv2": ["-c:v", "wmv2", "-q:v", "3", "-g", "20"],
    "theora": ["-c:v", "libtheora", "-q:v", "8", "-g", "20"],
    "gif": ["-c:v", "gif", "-pix_fmt", "rgb8"],
}
CONTAINERS = {
    "mp4": [
        "h264",
        "h264-b",
        "h264-open",
        "h264-refresh",
        "hevc",
        "hevc-b",
        "vp9",
        "vp9-hidden",
        "av1",
        "mpeg4",
        "mpeg4-b",
    ],
    "mov": ["h264", "h264-b", "h264-open", "hevc-b", "mpeg4-b", "mjpeg"],
    "mkv": [
        "h264",
        "h264-b",
        "h264-open",
        "h264-refresh",
        "hevc-b",
        "vp8",
        "vp9-hidden",
        "av1",
        "mpeg4-b",
        "mpeg2",
        "mjpeg",
        "theora",
    ],
    "webm": ["vp8", "vp8-hidden", "vp9", "vp9-hidden", "av1"],
    "avi": ["h264", "h264-b", "mpeg4", "mpeg4-b", "mjpeg"],
    "mpg": ["mpeg1", "mpeg2"],
    "ts": ["h264", "h264-b", "hevc-b", "mpeg2"],
    "flv": ["h264-b", "flv1"],
    "wmv": ["wmv2"],
    "ogv": ["theora"],
    "gif": ["gif"],
}
# What a container cannot store, or ffmpeg cannot write without encoding again.
VARIANTS = {
    "plain": set(CONTAINERS),
    "vfr": {"mp4", "mov", "mkv", "webm", "ts", "flv"},
    "late": {"mp4", "mov", "mkv", "webm", "ts", "flv"},
    "shifted": {"mp4", "mkv", "ts"},
    "cut": {"mp4", "mov"},
    "rotated": {"mp4", "mov"},
    "odd": {"mp4", "mkv", "webm"},
    "ten-bit": {"mp4", "mkv"},
    "two-streams": {"mp4", "mkv"},
    "fragmented": {"mp4"},
}
ONLY = {
    "odd": {"vp9", "vp8", "av1", "mpeg4"},
    "ten-bit": {"h264", "h264-b", "hevc-b", "vp9", "av1"},
}
CASES = [
    (container, codec, variant)
    for container, codecs in CONTAINERS.items()
    for codec in codecs
    for variant, containers in VARIANTS.items()
    if container in containers and codec in ONLY.get(variant, CODECS)
    # A gradual refresh has no frame at which a cut could begin: no decoder shows the first ones whole.
    if (codec, variant) != ("h264-refresh", "cut")
]
# Each of these is a trap of its own and always runs; the rest is sampled.
ALWAYS = [
    ("mp4", "h264-b", "cut"),
    ("mp4", "h264-b", "vfr"),
    ("mp4", "h264-b", "late"),
    ("mp4", "h264-open", "plain"),
    ("mkv", "h264-refresh", "plain"),
    ("mp4", "h264-b", "rotated"),
    ("mkv", "hevc-b", "plain"),
    ("webm", "vp8-hidden", "plain"),
    ("avi", "h264-b", "plain"),
    ("avi", "mpeg4-b", "plain"),
    ("mpg", "mpeg2", "plain"),
    ("ts", "h264-b", "late"),
    ("gif", "gif", "plain"),
]
SAMPLE = ALWAYS + random.Random(3).sample(sorted(set(CASES) - set(ALWAYS)), 12)
EVERY = Sampling(fps=50)
SPARSE = Sampling(fps=3)
RARE = Sampling(fps=0.6)  # less than one frame for each group of pictures
CLIPS = Sampling(strategy="dense", fps=6, frames=5, hop=0.7)
PARTS = Sampling(strategy="uniform", frames=7)
KEYS = Sampling(strategy="keyframes")
# All frames at once, and few: then backends skip, or let only some through.
PASSES = [[EVERY, CLIPS, KEYS], [SPARSE, CLIPS], [RARE], [PARTS], [KEYS]]


def draw(number: int, width: int, height: int) -> np.ndarray:
    """A grey frame (H, W) whose upper half is the number in `BITS` bars and whose lower half moves."""
    frame = np.empty((height, width), np.uint8)
    rows, columns = np.mgrid[0:height, 0:width]
    frame[:] = (columns * 2 + rows * 3 + number * 5) % 160 + 40
    for bit in range(BITS):
        frame[8:52, bit * 15 : (bit + 1) * 15] = 225 if number >> bit & 1 else 25
    return frame


def read(frame_HWC: np.ndarray, width: int, height: int) -> int:
    """The number in a frame that shows a drawing of (width, height), perhaps scaled."""
    grey = frame_HWC.astype(np.float64).mean(axis=2)
    across, down = grey.shape[1] / width, grey.shape[0] / height
    number = 0
    for bit in range(BITS):
        left, right = int((bit * 15 + 4) * across), int((bit * 15 + 11) * across)
        number |= int(grey[int(20 * down) : int(40 * down), left:right].mean() > 125) << bit
    return number


def ffmpeg(*arguments: str, feed: bytes | None = None) -> None:
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *arguments]
    subprocess.run(command, input=feed, check=True, stdout=subprocess.DEVNULL)


def generate(path: Path, codec: str, variant: str) -> tuple[list[float], int, tuple[int, int], int]:
    """Write the video; (true time of each number in seconds, first number shown, size drawn, quarter turns)."""
    size = (191, 107) if variant == "odd" else (WIDTH, HEIGHT)
    rate = 10 if codec == "gif" else RATE
    times = [number / rate for number in range(FRAMES)]
    raw = ["-f", "rawvideo", "-pix_fmt", "gray", "-s", "{}x{}".format(*size), "-framerate", str(rate), "-i", "-"]
    encode = [*CODECS[codec], "-fps_mode", "passthrough"]
    if "-pix_fmt" not in encode:
        encode += ["-pix_fmt", "yuv420p10le" if variant == "ten-bit" else "yuv420p"]
    first, turns, before, final = 0, 0, path.with_name(f"before-{path.name}"), path
    if variant == "vfr":
        encode += ["-vf", f"setpts='round(if(lt(N,40),N,40+(N-40)*4)/{RATE}/TB)'"]
        times = [(number if number < 40 else 40 + (number - 40) * 4) / RATE for number in range(FRAMES)]
    elif variant == "late":
        raw = ["-f", "lavfi", "-t", "4", "-i", "anullsrc=r=44100:cl=mono", "-itsoffset", str(LATE), *raw]
        encode += ["-map", "0:a", "-map", "1:v"]
    elif variant == "shifted":
        encode += ["-output_ts_offset", "8.3"]
    elif variant == "two-streams":
        encode += ["-map", "0:v", "-map", "0:v", "-filter:v:1", "negate", "-disposition:v:1", "default"]
    elif variant == "fragmented":
        encode += ["-movflags", "frag_keyframe+empty_moov"]
    elif variant in ("cut", "rotated"):
        final = before
    feed = b"".join(draw(number, *size).tobytes() for number in range(FRAMES))
    if codec.endswith("hidden"):  # libvpx makes hidden reference frames in its second pass only
        encode += ["-passlogfile", str(path.with_name("log"))]
        ffmpeg(*raw, *encode, "-pass", "1", "-f", "null", "-", feed=feed)
        encode += ["-pass", "2"]
    ffmpeg(*raw, *encode, str(final), feed=feed)
    if variant == "cut":
        ffmpeg("-ss", str(CUT), "-i", str(before), "-c", "copy", str(path))
        first = round(CUT * RATE)
        times = [number / RATE for number in range(FRAMES - first)]
    elif variant == "rotated":
        ffmpeg("-display_rotation", "90", "-i", str(before), "-c", "copy", str(path))
        turns = 1
    return times, first, size, turns


def expected_index(times: list[float], instant: float) -> int:
    """By the definition: the last frame shown at the instant or before it, half a millisecond forgiven."""
    return max(0, bisect_right(times, instant + 6e-4) - 1)


def check(path: Path, codec: str, variant: str) -> None:
    drawn = generate(path, codec, variant)
    for backend in ("decord", "pyav", "ffmpeg"):
        for samplings in PASSES:
            check_pass(path, variant, DecodeOptions(backend=backend), samplings, *drawn)


def check_pass(
    path: Path,
    variant: str,
    options: DecodeOptions,
    samplings: list[Sampling],
    times: list[float],
    first: int,
    size: tuple[int, int],
    turns: int,
) -> None:
    with open_video(path, samplings, options) as video:
        start = video.info.start
        # Sound in frames of its own begins a little before its time.
        assert start == pytest.approx(LATE if variant == "late" else 0.0, abs=0.05)
        shown = [time + start for time in times]
        rows: dict[str, list[float]] = {}
        for number, clip in iterate_clips(video):
            sampling = samplings[number]
            rows.setdefault(sampling.strategy, []).append(clip.start)
            for frame_HWC, index, time in zip(clip.frames_THWC, clip.index_T, clip.time_T, strict=True):
                assert read(np.rot90(frame_HWC, -turns), *size) - first == index
                assert time == pytest.approx(shown[index], abs=6e-4)
            if sampling.strategy == "fps":
                assert clip.index_T[0] == expected_index(shown, clip.start)
            elif sampling.strategy == "dense":
                instants = [clip.start + place / 6 for place in range(clip.valid)]
                assert clip.index_T[: clip.valid].tolist() == [expected_index(shown, one) for one in instants]
            elif sampling.strategy == "uniform":
                assert clip.index_T[0] == expected_index(shown, (clip.start + clip.end) / 2)
    info = video.info
    assert info.frames == len(times)
    end = shown[-1] + (times[-1] - times[-2] if variant != "vfr" else 0.0)
    assert info.duration == pytest.approx(end, abs=0.17 if variant == "vfr" else 0.011)
    assert (info.width, info.height) == (size[::-1] if turns else size)
    if SPARSE in samplings:
        begins = [row / 3 for row in range(int(shown[0] * 3), 999) if row / 3 < info.duration - 6e-4]
        assert rows["fps"] == pytest.approx(begins)
    if PARTS in samplings:
        assert len(rows["uniform"]) == 7
    if KEYS in samplings:
        assert rows["keyframes"][0] == pytest.approx(shown[0])


def name(case: tuple[str, str, str]) -> str:
    return "-".join(case)


@pytest.mark.parametrize("case", SAMPLE, ids=name)
def test_sampled_frames_carry_the_right_number(case: tuple[str, str, str], tmp_path: Path) -> None:
    container, codec, variant = case
    check(tmp_path / f"video.{container}", codec, variant)


@pytest.mark.full
@pytest.mark.parametrize("case", sorted(set(CASES) - set(SAMPLE)), ids=name)
def test_whole_matrix(case: tuple[str, str, str], tmp_path: Path) -> None:
    container, codec, variant = case
    check(tmp_path / f"video.{container}", codec, variant)
