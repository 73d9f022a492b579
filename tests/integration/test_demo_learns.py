"""The demo on three seeds: held-out retrieval far above chance, and at chance when training captions are shuffled."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from demo.__main__ import PREPROCESS_CONFIG, ROOT, TRAIN_CONFIG, run_steps, steps
from demo.corpus import shuffle_captions

VIDEOS = 120


@pytest.fixture(scope="module", params=[0, 1, 2])
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """A whole demo of one seed, by its own steps."""
    seed: int = request.param
    folder = tmp_path_factory.mktemp(f"demo{seed}")
    assert run_steps(steps(folder, seed, VIDEOS)) == 0
    return seed, folder


def recall(run: Path) -> tuple[float, dict[str, float]]:
    """R@10 of text to video, and what chance gives."""
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["data"]["windows"] >= 100
    direction = metrics["text_to_video"]
    return direction["R@10"], direction["chance"]["R@10"]


def run(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", *map(str, arguments)], cwd=ROOT, check=True)


@pytest.mark.full
@pytest.mark.timeout(2400)
def test_held_out_retrieval_is_at_least_four_times_chance(demo: tuple[int, Path]) -> None:
    _, folder = demo
    found, chance = recall(folder / "run")
    assert found >= 4 * chance["level"]


@pytest.mark.full
@pytest.mark.timeout(2400)
def test_shuffled_training_captions_give_chance(demo: tuple[int, Path]) -> None:
    """The same features, each training video with another's captions: whatever is learned then is no help."""
    seed, folder = demo
    manifest = shuffle_captions(folder / "corpus", seed, VIDEOS)
    store, result = folder / "shuffled-store", folder / "shuffled-run"
    shutil.copytree(folder / "store", store)
    run("preprocess", "run", PREPROCESS_CONFIG, f"inputs={manifest}", f"store={store}")
    run("train", "fit", TRAIN_CONFIG, f"store={store}", f"run={result}", f"seed={seed}")
    run("train", "evaluate", result)
    found, chance = recall(result)
    assert chance["low"] <= found <= chance["high"]
