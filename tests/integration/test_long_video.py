"""A video of three hours is decoded and extracted in bounded memory, whichever backend reads it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import imageio_ffmpeg
import pytest

from shared.store import open_store

HOURS = 3
MINUTE = 60
LIMIT = 1.5 * 2**30  # bytes, decoding and extracting in one process: the engine gives each of them one of its own

RUN = """
import resource, sys
from preprocess.cli import app
try:
    app(["run", sys.argv[1]])
finally:
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    print("peak", max(resource.getrusage(one).ru_maxrss for one in who), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def long_video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One minute, copied one after the other without encoding again."""
    folder = tmp_path_factory.mktemp("long")
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error"]
    source = ["-f", "lavfi", "-i", f"testsrc2=s=192x108:r=25:d={MINUTE}", "-c:v", "libx264", "-pix_fmt", "yuv420p"]
    subprocess.run([*ffmpeg, *source, str(folder / "minute.mp4")], check=True)
    repeat = ["-stream_loop", str(HOURS * 60 - 1), "-i", str(folder / "minute.mp4"), "-c", "copy"]
    subprocess.run([*ffmpeg, *repeat, str(folder / "hours.mp4")], check=True)
    (folder / "videos.csv").write_text("video_id,video_path\nlong,hours.mp4\n")
    return folder


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["auto", "decord", "ffmpeg"])
def test_three_hours_stay_small(long_video: Path, tmp_path: Path, backend: str) -> None:
    config = {
        "inputs": str(long_video / "videos.csv"),
        "store": str(tmp_path / "store"),
        "engine": "here",
        "device": "cpu",
        "decode": {"backend": backend},
        "streams": {"thumbs": {"kind": "frames", "size": 64, "sampling": {"fps": 1}}},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    command = [sys.executable, "-c", RUN, str(tmp_path / "config.yaml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    peak = int(done.stderr.rpartition("peak")[2]) * (1 if sys.platform == "darwin" else 1024)
    assert peak < LIMIT
    stream = open_store(tmp_path / "store").stream("thumbs")
    assert stream.rows_per_video.tolist() == [HOURS * 3600]
