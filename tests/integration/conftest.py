"""Small real media for the tests of whole commands."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import imageio_ffmpeg
import pytest
import torch

VIDEOS = 12


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """One thread for torch in this process, as torchrun gives to those that it starts."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def draw_video() -> Callable[..., None]:
    """`draw_video(path, seconds=2, hue=0)`: a small H.264 file at 5 frames a second."""
    return _draw


@pytest.fixture(scope="session")
def small_media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 12 small H.264 files, a bad one, a missing one, captions and the manifest videos.csv."""
    folder = tmp_path_factory.mktemp("media")
    rows = []
    for number in range(VIDEOS):
        name = f"clip {number}.mp4"
        _draw(folder / name, seconds=2 + number % 4, hue=30 * number)
        captions = "WEBVTT\n\n00:00.000 --> 00:01.000\nthe first & best\n\n00:01.000 --> 00:02.000\nand number "
        (folder / f"{number}.vtt").write_text(f"{captions}{number}\n")
        rows.append([f"v{number}", name, f"{number}.vtt", "val" if number % 4 == 0 else "train"])
    (folder / "broken.mp4").write_bytes(b"no video at all")
    rows += [["broken", "broken.mp4", "0.vtt", "train"], ["missing", "missing.mp4", "", "train"]]
    with (folder / "videos.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["video_id", "video_path", "caption_path", "split"], *rows])
    return folder


def _draw(path: Path, *, seconds: int = 2, hue: int = 0) -> None:
    source = f"testsrc2=size=64x48:rate=5:duration={seconds}"
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", "-f", "lavfi", "-i", source]
    subprocess.run([*command, "-vf", f"hue=h={hue}", "-pix_fmt", "yuv420p", str(path)], check=True)
