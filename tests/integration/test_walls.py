"""`train` reads artifacts only: with preprocessing and every decoder out of reach, all of it imports and trains."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import importlib
import pkgutil
import sys

BLOCKED = {
    "av", "cv2", "decord", "ffmpeg", "imageio_ffmpeg", "preprocess", "ray", "timm", "torchcodec", "torchvision",
    "webvtt",
}


class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"train reached for {name}")
        return None


sys.meta_path.insert(0, Wall())
for name in sorted(BLOCKED):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert "train reached for" in str(error)
    else:
        raise AssertionError(f"{name} was not blocked")

import train

modules = [module.name for module in pkgutil.walk_packages(train.__path__, "train.")]
for name in modules:
    importlib.import_module(name)
assert {"train.loop", "train.cli", "train.model.text_tower", "train.losses.mil_nce"} <= set(modules), modules

from train.cli import app

store, run = sys.argv[1:]
config = f"{run}.yaml"
with open(config, "w") as file:
    file.write(f"store: {store}\\nrun: {run}\\nsteps: 2\\nbatch_size: 8\\nlog_every: 1\\ndevice: cpu\\n")
for arguments in (["fit", config], ["evaluate", config], ["report", run]):
    app(arguments, standalone_mode=False)
reached = sorted(BLOCKED & {name.partition(".")[0] for name in sys.modules})
assert not reached, reached
print(f"{len(modules)} modules")
"""


def test_train_works_with_preprocessing_out_of_reach(tmp_path, small_store):
    store = small_store(tmp_path / "store", thumbs=True)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, str(store), str(tmp_path / "run")],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "step 2/2" in done.stdout
    assert (tmp_path / "run" / "report.html").exists()
