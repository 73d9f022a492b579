"""The example of docs/own-model.md, as it stands there: made by the house's rules, trained and evaluated."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
import yaml

from shared.config import load_config
from shared.errors import InputFileError, RequestError
from train.config import FitConfig
from train.evaluate import evaluate
from train.loop import fit
from train.model import VIDEO_HEADS, VideoHeadConfig

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The page's config, with its head in VIDEO_HEADS."""
    page = (ROOT / "docs" / "own-model.md").read_text()
    file, line, config = re.findall(r"```(?:python|yaml)\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "train" / "model" / "conv_head.py"
    shutil.copytree(ROOT / "train" / "model", path.parent, ignore=shutil.ignore_patterns("__pycache__"))
    path.write_text(file)
    spec = spec_from_file_location("conv_head", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, head in eval(f"{{{line}}}", vars(module)).items():
        monkeypatch.setitem(VIDEO_HEADS, name, head)
    return yaml.safe_load(config)


def test_the_example_is_as_the_house_writes(example, tmp_path):
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for check in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *check, "--no-cache", "train/model/conv_head.py"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def test_padding_and_half_precision_are_nothing_to_it(example):
    head = VIDEO_HEADS["conv"]((6, 3), 4, VideoHeadConfig(**example["model"]["video"])).eval()
    video, mask = torch.randn(2, 5, 9).half(), torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    padded = torch.where(mask[..., None], video, torch.tensor(torch.nan))
    torch.testing.assert_close(head(padded, mask)[:1], head(video[:1, :3], mask[:1, :3]))


def test_the_example_learns_and_is_evaluated_where_it_is_known(example, tmp_path, small_store, monkeypatch):
    values = {"store": small_store(tmp_path / "store"), "run": tmp_path / "run", "batch_size": 24, "steps": 30}
    values |= {"eval_every": 0, "checkpoint": {"every_epochs": 0}}
    model = {"dim": 12, "text": {"name": "words", "word_dim": 8, "hidden": 16}} | example["model"]
    fit(FitConfig.model_validate({**values, "model": model, "optim": {"lr": 0.02}, "device": "cpu"}))
    found = evaluate(tmp_path / "run")["text_to_video"]
    assert found["R@5"] > found["chance"]["R@5"]["high"]

    monkeypatch.delitem(VIDEO_HEADS, "conv")
    with pytest.raises(
        InputFileError, match=r"model.video.name: 'conv' is not known.*the code that it was trained"
    ) as no:
        evaluate(tmp_path / "run")
    assert "train again" not in str(no.value)


def test_names_come_from_the_dict(example, tmp_path):
    path = tmp_path / "fit.yaml"
    path.write_text("store: s\nrun: r\nsteps: 1\n")
    assert load_config(path, FitConfig, ["model.video.name=conv"]).model.video.name == "conv"
    known = "`mean`, `max`, `attention`, `transformer` or `conv`"
    with pytest.raises(RequestError, match=f"model.video.name: expected {known}, got 'con'; is `conv` meant"):
        load_config(path, FitConfig, ["model.video.name=con"])
