"""Checkpoints with a good seal whose content is not what a run saves: one message, in whatever reads them."""

from __future__ import annotations

import shutil

import pytest
import torch

from shared.errors import InputFileError, RequestError
from train.checkpoint import checkpoint_path, load_checkpoint, save_checkpoint
from train.config import FitConfig
from train.evaluate import evaluate
from train.loop import fit
from train.replay import replay

STEP = 2


@pytest.fixture(scope="module")
def config(tmp_path_factory, small_store):
    folder = tmp_path_factory.mktemp("content")
    values = {
        "store": small_store(folder / "store", splits={"train": 8, "val": 4}),
        "run": folder / "run",
        "model": {"dim": 6, "text": {"name": "words", "word_dim": 4, "hidden": 5}},
        "batch_size": 4,
        "steps": STEP,
        "eval_every": 0,
        "negatives": {"name": "queue", "size": 8},
        "device": "cpu",
    }
    fit(FitConfig.model_validate(values))
    return FitConfig.model_validate(values)


@pytest.fixture
def copied(config, tmp_path):
    """The run in a folder of its own: the path of its last checkpoint, and its config there."""
    shutil.copytree(config.run, tmp_path / "run")
    return checkpoint_path(tmp_path / "run", STEP), config.model_copy(update={"run": tmp_path / "run"})


def spoil(path, change):
    content = load_checkpoint(path)
    del content["version"]
    change(content)
    save_checkpoint(path, content)


def first_weight(content):
    return next(name for name, value in content["model"].items() if value.ndim == 2)


def cut_weight(content):
    content["model"][first_weight(content)] = torch.zeros(3, 3)


def cut_moment(content):
    content["optimizer"]["state"][0]["exp_avg"] = torch.zeros(3, 3)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda content: content.pop("model"), "it holds no 'model'"),
        (lambda content: content.update(model=3), "its 'model' is of type int, expected dict"),
        (lambda content: content["model"].pop(first_weight(content)), "Missing key"),
        (cut_weight, "size mismatch"),
        (lambda content: content.update(config="x"), "its 'config' is of type str, expected dict"),
        (lambda content: content["order"].update(step="two"), "it was saved after 'two' steps"),
    ],
)
def test_a_model_that_is_none_is_one_message_everywhere(copied, change, fault):
    path, config = copied
    spoil(path, change)
    for read in (lambda: fit(config), lambda: evaluate(path)):
        with pytest.raises(InputFileError, match=rf"{path} .*{fault}.*; give another file"):
            read()
    # Evaluation reads the config first.
    spoil(path, lambda content: content.update(failure={"step": 1, "what": "loss", "value": "nan", "store": "/"}))
    with pytest.raises(InputFileError, match=fault):
        replay(path, config.store)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda content: content.pop("health"), "it holds no 'health'"),
        (lambda content: content["health"].pop("losses"), "'losses' is missing"),
        (lambda content: content.update(random=torch.zeros_like(content["random"])), "holds what no run"),
        (lambda content: content.update(random=content["random"].float()), "holds what no run"),
        (lambda content: content.update(random=None), "its 'random' is of type NoneType, expected Tensor"),
        (lambda content: content["order"].update(step=1000), "saved after 1000 steps of a run that has 2"),
        (lambda content: content["optimizer"].update(param_groups=[]), "holds what no run"),
        (lambda content: content.update(negatives=None), "holds what no run"),
        (cut_moment, r"exp_avg of parameter 0 has shape \(3, 3\), expected"),
    ],
)
def test_a_state_that_a_run_cannot_go_on_from_is_one_message(copied, change, fault):
    path, config = copied
    spoil(path, change)
    with pytest.raises(InputFileError, match=rf"{path} .*{fault}"):
        fit(config)


def test_a_dump_whose_failure_is_none_is_one_message(copied):
    path, _ = copied
    for failure in ({}, {"step": "x", "what": "loss", "value": "nan", "store": "/"}, 3):
        spoil(path, lambda content, failure=failure: content.update(failure=failure))
        with pytest.raises(InputFileError, match="holds what no run of this version saves"):
            replay(path)


def test_a_run_folder_is_gone_on_from_its_last_checkpoint(config, copied, tmp_path, capsys):
    path, _ = copied
    other = config.model_copy(update={"run": tmp_path / "other", "resume": str(path.parents[1])})
    fit(other)
    assert f"resuming from {path} after step {STEP}" in capsys.readouterr().out
    path.unlink()
    with pytest.raises(RequestError, match=rf"resume={path.parents[1]}: this run folder has no checkpoint"):
        fit(other)


def test_a_folder_to_replay_is_told_what_is_in_it(tmp_path):
    with pytest.raises(RequestError, match=r"is a folder without a nonfinite-\*\.pt: no step of a run failed there"):
        replay(tmp_path)
    for step in (3, 12):
        (tmp_path / f"nonfinite-{step:08d}.pt").touch()
    with pytest.raises(RequestError, match=rf"is a folder, expected .*; give {tmp_path}/nonfinite-00000012\.pt"):
        replay(tmp_path)
