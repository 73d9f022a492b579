"""From media files to metrics; and training without them, with every decoder and Ray out of reach."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from shared.verify import verify_store

ROOT = Path(__file__).resolve().parents[2]

PREPROCESS = """
inputs: {folder}/videos.csv
store: {folder}/store
streams:
  default: {{kind: timm, size: 64}}
  second: {{kind: timm, size: 32, sampling: {{fps: 0.7}}}}
sets: {{default: {{stream: default, windows: {{candidates: 2}}}}}}
engine: here
"""
TRAIN = """
store: {folder}/store
run: {folder}/run
model: {{dim: 16, text: {{name: words, word_dim: 16, hidden: 32}}}}
data: {{also: [second]}}
batch_size: 4
steps: 3
log_every: 1
device: cpu
"""
# Python imports `sitecustomize` by itself at the start of every process that sees it.
WALL = """
import sys

BLOCKED = {"av", "decord", "ffmpeg", "imageio_ffmpeg", "preprocess", "ray", "timm", "torchvision", "webvtt"}


class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is out of reach")


sys.meta_path.insert(0, Wall())
"""


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
    )


def test_two_ranks_train_on_a_store_whose_videos_are_gone(small_media: Path, tmp_path: Path) -> None:
    media = tmp_path / "media"
    shutil.copytree(small_media, media)
    (tmp_path / "pre.yaml").write_text(PREPROCESS.format(folder=media))
    (tmp_path / "fit.yaml").write_text(TRAIN.format(folder=media))
    made = run(tmp_path, "preprocess", "run", str(tmp_path / "pre.yaml"))
    assert made.returncode == 1, made.stderr  # two of the inputs are bad on purpose
    assert verify_store(media / "store") == []
    for path in media.glob("*.mp4"):
        path.unlink()
    wall = tmp_path / "wall"
    wall.mkdir()
    (wall / "sitecustomize.py").write_text(WALL)
    blocked = {"PYTHONPATH": f"{wall}{os.pathsep}{ROOT}"}
    assert "out of reach" in run(tmp_path, "ray", **blocked).stderr

    launch = ("torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "train", "fit")
    fitted = run(tmp_path, *launch, str(tmp_path / "fit.yaml"), **blocked)
    assert fitted.returncode == 0, fitted.stderr
    assert "step 3/3" in fitted.stdout
    assert "rows of 1280 + 1280 from streams default, second" in fitted.stdout
    evaluated = run(tmp_path, "train", "evaluate", str(media / "run"), **blocked)
    assert evaluated.returncode == 0, evaluated.stderr
    metrics = json.loads((media / "run" / "metrics.json").read_text())
    assert metrics["text_to_video"]["queries"] == 6
    assert set(metrics["data"]["also"]) == {"second"}
