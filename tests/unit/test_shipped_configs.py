"""Every config that is shipped says only what its program knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from preprocess.config import PreprocessConfig
from shared.config import load_config
from train.config import FitConfig

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("preprocess/*.yaml")), ids=lambda path: path.name)
def test_preprocess_configs(path: Path) -> None:
    load_config(path, PreprocessConfig)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("train/*.yaml")), ids=lambda path: path.name)
def test_train_configs(path: Path) -> None:
    load_config(path, FitConfig)
