"""Every config that is shipped says only what its program knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from preprocess.config import PreprocessConfig
from shared.config import load_config, merge_yaml
from train.config import FitConfig
from train.tasks import TASKS, is_task

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("preprocess/*.yaml")), ids=lambda path: path.name)
def test_preprocess_configs(path: Path) -> None:
    load_config(path, PreprocessConfig)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("train/**/*.yaml")), ids=lambda path: path.name)
def test_train_configs(path: Path) -> None:
    load_config(path, FitConfig)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("evaluate/*.yaml")), ids=lambda path: path.name)
def test_evaluate_configs(path: Path) -> None:
    assert is_task(path)
    load_config(path, TASKS[merge_yaml(path, [])["task"]])
