"""Frames to an H.264 file whose bytes depend on the frames alone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import imageio_ffmpeg
from PIL import Image

from shared.errors import EnvironmentLacking, RunFailed


def ffmpeg_binary() -> str:
    """The ffmpeg that imageio-ffmpeg carries; raises EnvironmentLacking where there is none."""
    try:
        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except RuntimeError as error:
        message = f"no ffmpeg binary: {error}; reinstall imageio-ffmpeg, or set IMAGEIO_FFMPEG_EXE to your own"
        raise EnvironmentLacking(message) from None


def encode_h264(frames: Iterable[Image.Image], size: tuple[int, int], fps: int, path: Path) -> None:
    """Write RGB pictures of `size` (width, height) as `path`, appearing there only when complete.

    One encoder thread and bit-exact flags: no dates, no version tags, no influence of the number of cores.
    Raises RunFailed with ffmpeg's own words when it fails.
    """
    partial = path.with_suffix(".partial.mp4")
    exact = ["-fflags", "+bitexact", "-flags:v", "+bitexact", "-map_metadata", "-1"]
    codec = [
        "-c:v",
        "libx264",
        "-preset",
        "superfast",
        "-crf",
        "24",
        "-pix_fmt",
        "yuv420p",
        "-g",
        "50",
        "-threads",
        "1",
    ]
    source = [
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-s",
        f"{size[0]}x{size[1]}",
        "-r",
        str(fps),
        "-i",
        "pipe:0",
    ]
    command = [
        ffmpeg_binary(),
        "-v",
        "error",
        "-y",
        "-filter_threads",
        "1",
        *source,
        *codec,
        *exact,
        str(partial),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            for frame in frames:
                process.stdin.write(frame.tobytes())
            process.stdin.close()
        except BrokenPipeError:
            pass  # ffmpeg ended early: its exit status and message below say why
        message = process.stderr.read().decode(errors="replace").strip()
    if process.returncode != 0:
        partial.unlink(missing_ok=True)
        raise RunFailed(f"ffmpeg ended with {process.returncode} while writing {path}: {message}")
    partial.replace(path)
