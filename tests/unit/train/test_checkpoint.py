from __future__ import annotations

import pickle

import pytest
import torch

from shared.errors import InputFileError, RequestError
from train.checkpoint import (
    best_path,
    checkpoint_path,
    differences,
    drop_old,
    gather_random_states,
    last_checkpoint,
    load_checkpoint,
    random_state,
    resolve_checkpoint,
    restore_random_state,
    save_checkpoint,
)
from train.distributed import World

ALONE = World(0, 1, 0, torch.device("cpu"))


def test_round_trip_of_tensors_and_values(tmp_path):
    path = checkpoint_path(tmp_path, 12)
    content = {"weights": {"a": torch.arange(5.0)}, "names": ["x"], "best": None, "step": 3}
    save_checkpoint(path, content)
    loaded = load_checkpoint(path)
    assert torch.equal(loaded["weights"]["a"], torch.arange(5.0))
    assert (loaded["names"], loaded["best"], loaded["step"]) == (["x"], None, 3)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_an_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = checkpoint_path(tmp_path, 1)
    save_checkpoint(path, {"step": 1})

    def torn(content, file):
        file.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", torn)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(path, {"step": 2})
    assert load_checkpoint(path)["step"] == 1
    assert last_checkpoint(tmp_path) == path


def test_last_and_best_and_how_many_stay(tmp_path):
    assert last_checkpoint(tmp_path) is None
    with pytest.raises(RequestError, match="has no checkpoint yet"):
        resolve_checkpoint(tmp_path)
    for step in (2, 10, 100_000_000, 9):
        save_checkpoint(checkpoint_path(tmp_path, step), {"step": step})
    assert last_checkpoint(tmp_path) == checkpoint_path(tmp_path, 100_000_000)
    assert resolve_checkpoint(tmp_path) == last_checkpoint(tmp_path)
    save_checkpoint(best_path(tmp_path), {"step": 9})
    drop_old(tmp_path, 2)
    names = {path.name for path in best_path(tmp_path).parent.iterdir()}
    assert names == {"best.pt", "step-00000010.pt", "step-100000000.pt"}
    assert resolve_checkpoint(tmp_path) == best_path(tmp_path)


def test_what_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(RequestError, match="does not exist"):
        load_checkpoint(tmp_path / "none.pt")
    text = tmp_path / "text.pt"
    text.write_text("hello")
    with pytest.raises(InputFileError, match="is no checkpoint"):
        load_checkpoint(text)
    other = tmp_path / "other.pt"
    torch.save({"version": 99}, other)
    with pytest.raises(InputFileError, match="version 99, expected 1"):
        load_checkpoint(other)
    torch.save([1], other)
    with pytest.raises(InputFileError, match="version list"):
        load_checkpoint(other)


class Evil:
    def __reduce__(self):
        return print, ("executed",)


def test_nothing_in_a_file_is_executed(tmp_path, capsys):
    path = tmp_path / "evil.pt"
    torch.save({"version": 1, "x": Evil()}, path, pickle_module=pickle)
    with pytest.raises(InputFileError, match="is no checkpoint"):
        load_checkpoint(path)
    assert "executed" not in capsys.readouterr().out


def test_generators_go_on_where_they_were():
    torch.manual_seed(5)
    torch.rand(3)
    states = gather_random_states(random_state(ALONE.device), ALONE)
    expected = torch.rand(4)
    torch.manual_seed(6)
    assert restore_random_state(states, ALONE)
    assert torch.equal(torch.rand(4), expected)
    assert not restore_random_state(states, World(0, 2, 0, torch.device("cpu")))


def test_differences_name_each_leaf():
    before = {"optim": {"lr": 0.1, "betas": [0.9, 0.99]}, "seed": 0, "gone": 1}
    now = {"optim": {"lr": 0.2, "betas": [0.9, 0.99]}, "seed": 0, "new": {"a": 1}}
    assert differences(before, now) == ["gone: 1 -> None", "new: None -> {'a': 1}", "optim.lr: 0.1 -> 0.2"]
    assert differences(now, now) == []
