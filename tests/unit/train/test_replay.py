"""Steps that fail for one reason each, and what a replay says of them."""

from __future__ import annotations

import math

import pytest
import torch
from typer.testing import CliRunner

from shared.errors import InputFileError, RequestError
from train.checkpoint import checkpoint_path, load_checkpoint, save_checkpoint
from train.cli import app
from train.config import FitConfig
from train.data import WindowData
from train.loop import Trainer, fit
from train.replay import replay

STEP = 2


@pytest.fixture(scope="module")
def config(tmp_path_factory, small_store):
    folder = tmp_path_factory.mktemp("replay")
    values = {
        "store": small_store(folder / "store", splits={"train": 12}),
        "run": folder / "run",
        "model": {"dim": 6, "video": {"dropout": 0.3}, "text": {"name": "words", "word_dim": 4, "hidden": 5}},
        "order": {"candidates": 2},
        "batch_size": 4,
        "steps": STEP,
        "val_split": None,
        "negatives": {"name": "moco", "size": 8, "momentum": 0.9},
        "device": "cpu",
    }
    fit(FitConfig.model_validate(values))
    return FitConfig.model_validate(values)


@pytest.fixture
def dumped(config, tmp_path):
    """A dump of the state after the run's steps as of a run of two ranks, with its content changed."""

    def make(change=lambda content: None):
        content = load_checkpoint(checkpoint_path(config.run, STEP))
        content["random"] = content["random"].repeat(2, 1)
        failure = {"step": 1, "what": "loss", "value": "nan", "videos": [], "store": str(config.store)}
        content["failure"] = failure
        del content["version"]
        change(content)
        save_checkpoint(tmp_path / "nonfinite-00000001.pt", content)
        return tmp_path / "nonfinite-00000001.pt"

    return make


def faults(found):
    return {part.name: part.fault for part in found.parts}


def test_a_step_that_does_not_fail_again(dumped):
    path = dumped()
    assert replay(path).first is None
    done = CliRunner().invoke(app, ["replay", str(path)])
    assert done.exit_code == 0
    assert "which failed as loss nan" in done.stdout
    assert "every number is finite here" in done.stdout


def test_its_loss_is_the_one_of_the_run(config, tmp_path, monkeypatch):
    """Every step of a run of one rank, dumped before it is made: dropout and key towers are as they were."""
    losses, train = [], Trainer._train

    def dumping(self, batch, index):
        failure = {"step": index, "what": "loss", "value": "nan", "videos": [], "store": str(config.store)}
        self.saving.write(tmp_path / f"{index}.pt", index, torch.get_rng_state(), {"failure": failure})
        result = train(self, batch, index)
        losses.append(result.loss)
        return result

    monkeypatch.setattr(Trainer, "_train", dumping)
    fit(config.model_copy(update={"run": tmp_path / "run"}))
    assert len(losses) == STEP
    for index, loss in enumerate(losses):
        found = {part.name: part.value for part in replay(tmp_path / f"{index}.pt").parts}
        assert float(found["loss"]) == pytest.approx(loss, rel=1e-5)


def test_each_ranks_part_draws_that_ranks_random_numbers(dumped):
    losses = []
    for seeds in ((1, 1), (2, 2), (1, 2)):
        states_WN = torch.stack([torch.Generator().manual_seed(seed).get_state() for seed in seeds])
        found = replay(dumped(lambda content, states_WN=states_WN: content.update(random=states_WN)))
        losses.append(next(part.value for part in found.parts if part.name == "loss"))
    assert len(set(losses)) == 3


def test_a_weight_is_named_with_all_that_follows_from_it(dumped):
    def spoil(content):
        content["model"]["text.hidden.weight"] = torch.full_like(content["model"]["text.hidden.weight"], math.nan)

    found = replay(dumped(spoil))
    assert found.first.name == "weights"
    assert "text.hidden.weight" in found.first.fault
    assert "caption '" in faults(found)["text tower"]
    assert faults(found)["video tower"] is None
    assert "loss is nan" in faults(found)["loss"]
    assert faults(found)["gradients"].startswith("not finite: ")


def test_the_video_whose_rows_are_not_finite_is_named(dumped, monkeypatch):
    read = WindowData.batch

    def spoilt(self, selection):
        batch = read(self, selection)
        batch.video_BTD[1, 0] = math.inf
        return batch

    monkeypatch.setattr(WindowData, "batch", spoilt)
    found = replay(dumped())
    assert found.first.name == "rows"
    # Two of four clips: the second one of each rank's part.
    assert found.first.fault.count(" @ ") == 2
    assert found.first.fault == faults(found)["video tower"]


def test_similarities_that_overflow_are_named_by_pair(dumped):
    def change(content):
        content["model"]["temperature.log_value"] = torch.tensor(-95.0)

    found = replay(dumped(change))
    assert found.first.name == "similarities"
    assert "inf of train" in found.first.fault
    assert " with caption '" in found.first.fault


def test_finite_gradients_whose_norm_is_not_are_named(dumped, monkeypatch):
    find = torch.nn.utils.get_total_norm
    monkeypatch.setattr(torch.nn.utils, "get_total_norm", lambda grads: find([grad * 1e30 for grad in grads]))
    fault = faults(replay(dumped()))["gradients"]
    assert fault.startswith("norm inf, though every gradient is finite: the largest is ")
    assert fault.endswith((".weight", ".bias", "temperature.log_value"))


def test_what_is_no_dump_or_of_another_store_is_refused(config, dumped, tmp_path, small_store):
    with pytest.raises(RequestError, match="is a checkpoint, not a dump of a failed step"):
        replay(checkpoint_path(config.run, STEP))
    other = small_store(tmp_path / "other", splits={"train": 12}, seed=7, set_fingerprint="another")
    with pytest.raises(RequestError, match="with --store, as it was then"):
        replay(dumped(), other)
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(InputFileError):
        replay(tmp_path / "text.pt")
