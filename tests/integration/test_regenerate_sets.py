"""A set made again after a change of the tokenizer alone: no row and no video is opened, and training runs on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from preprocess.cli import app as preprocess
from shared.cli import guarded
from shared.store import open_store
from shared.verify import verify_store
from train.cli import app as train

ROOT = Path(__file__).resolve().parents[2]
PREPROCESS = """
inputs: {folder}/videos.csv
store: {folder}/store
streams: {{default: {{kind: timm, size: 64}}}}
sets: {{default: {{windows: {{candidates: 2}}}}}}
engine: here
"""
TRAIN = """
store: {folder}/store
run: {folder}/run
model: {{dim: 16, text: {{name: words, word_dim: 16, hidden: 32}}}}
batch_size: 4
steps: 3
device: cpu
"""
# Writes down every path that Python opens, then runs the command line of preprocessing.
TRACED = """
import sys

log = open(sys.argv.pop(1), "w")
def note(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        print(arguments[0], file=log, flush=True)
sys.addaudithook(note)

from preprocess.cli import app
from shared.cli import guarded
sys.exit(guarded(lambda: app(standalone_mode=False)))
"""


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def media(small_media: Path, tmp_path: Path) -> Path:
    """Media, a config beside them, and the store that `preprocess run` made of them."""
    folder = tmp_path / "media"
    shutil.copytree(small_media, folder)
    (folder / "pre.yaml").write_text(PREPROCESS.format(folder=folder))
    (folder / "fit.yaml").write_text(TRAIN.format(folder=folder))
    command = ["run", str(folder / "pre.yaml"), "--limit", "8"]
    assert guarded(lambda: preprocess(command, standalone_mode=False)) == 0
    return folder


def test_another_tokenizer_needs_neither_rows_nor_videos(media: Path, tmp_path: Path) -> None:
    before = open_store(media / "store").manifest_set("default").info
    rows = sorted((media / "store" / "features").rglob("*.npy"))
    assert rows
    aside = tmp_path / "aside"
    aside.mkdir()
    # What a decoder or HDF5 opens in C is not traced: what is not there cannot be opened by anyone.
    for path in rows:
        path.rename(aside / path.name)
    for path in media.glob("*.mp4"):
        path.unlink()
    command = ("manifests", "pre.yaml", "sets.default.tokenizer.max_length=5")
    again = python(media, "-c", TRACED, str(tmp_path / "opened.txt"), *command)
    assert again.returncode == 0, again.stderr
    opened = (tmp_path / "opened.txt").read_text().splitlines()
    assert any("/store/captions/" in path for path in opened)
    touched = [path for path in opened if path.endswith((".mp4", ".h5")) or "/features/" in path]
    assert {Path(path).suffix for path in touched} == {".json"}
    for path in rows:
        (aside / path.name).rename(path)
    after = open_store(media / "store").manifest_set("default").info
    assert (before.tokenizer["max_length"], after.tokenizer["max_length"]) == (32, 5)
    assert (after.captions, after.splits) == (before.captions, before.splits)
    assert after.tokens < before.tokens
    assert verify_store(media / "store") == []
    assert guarded(lambda: train(["fit", str(media / "fit.yaml")], standalone_mode=False)) == 0
