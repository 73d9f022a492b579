from __future__ import annotations

import contextlib
import io
import logging
import pickle
import random

import pytest
import torch
import xxhash
from safetensors.torch import save_file
from torch import nn

from preprocess.extract.weights import (
    file_digest,
    fill,
    find_weights,
    note_random_weights,
    read_state,
    state_digest,
)
from shared.errors import EnvironmentLacking, RequestError


@pytest.fixture
def state():
    return {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.ones(2)}


@pytest.mark.parametrize("value", [None, "/nowhere/at/all.pth"])
def test_missing_weights_name_three_ways_and_exit_3(value):
    with pytest.raises(EnvironmentLacking) as caught:
        find_weights(value, "some_model", "`weights: hub`")
    message = str(caught.value)
    assert caught.value.exit_code == 3
    for part in ("some_model", "`weights: hub`", "/path/to/file", "package:", "weights: random", "seed"):
        assert part in message


def test_a_folder_is_not_a_file_of_weights_nor_the_other_way_round(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(RequestError, match="is a folder, expected a file"):
        find_weights(str(tmp_path), "m", "by name")
    with pytest.raises(RequestError, match="is a file, expected a folder of a checkpoint"):
        find_weights(str(tmp_path / "file"), "m", "by name", folder=True)
    assert find_weights(str(tmp_path), "m", "by name", folder=True) == tmp_path


def test_torch_and_safetensors_files_read_the_same(tmp_path, state):
    torch.save(state, tmp_path / "a.pth")
    save_file(state, tmp_path / "a.safetensors")
    for name in ("a.pth", "a.safetensors"):
        read = read_state(tmp_path / name)
        assert all(torch.equal(read[key], state[key]) for key in state)


@pytest.mark.parametrize("wrap", ["state_dict", "model"])
def test_wrappings_of_training_checkpoints_are_taken_off(tmp_path, state, wrap):
    torch.save({wrap: {f"module.{key}": value for key, value in state.items()}, "epoch": 3}, tmp_path / "c.pth")
    assert list(read_state(tmp_path / "c.pth")) == ["weight", "bias"]


class _Evil:
    def __reduce__(self):
        return print, ("executed",)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.9, 0.99])
def test_a_cut_file_is_a_request_error(tmp_path, state, legacy, part):
    buffer = io.BytesIO()
    torch.save(state, buffer, _use_new_zipfile_serialization=not legacy)
    whole = buffer.getvalue()
    path = tmp_path / "cut.pth"
    path.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(RequestError, match=r"cut\.pth cannot be read"):
        read_state(path)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_flipped_and_cut_bytes_are_a_request_error_or_read(tmp_path, state, legacy):
    buffer = io.BytesIO()
    torch.save(state, buffer, _use_new_zipfile_serialization=not legacy)
    dice = random.Random(0)
    path = tmp_path / "flipped.pth"
    for _ in range(400):
        content = bytearray(buffer.getvalue())
        for _ in range(dice.choice([1, 5, 20])):
            content[dice.randrange(min(len(content), 500))] = dice.randrange(256)
        path.write_bytes(content[: dice.choice([len(content), dice.randrange(len(content))])])
        with contextlib.suppress(RequestError):
            read_state(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("page.pth", b"<!DOCTYPE html><html>not found</html>"),
        ("page.safetensors", b"<!DOCTYPE html><html>not found</html>"),
        ("evil.pth", pickle.dumps(_Evil(), protocol=2)),
    ],
)
def test_what_is_no_file_of_tensors_is_a_request_error_and_runs_nothing(tmp_path, capsys, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError, match="cannot be read"):
        read_state(tmp_path / name)
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize("value", [torch.ones(2), {"a": 1}, {}, [torch.ones(1)]])
def test_a_file_without_named_tensors_is_a_request_error(tmp_path, value):
    torch.save(value, tmp_path / "w.pth")
    with pytest.raises(RequestError, match="state dict"):
        read_state(tmp_path / "w.pth")


def test_fill_names_the_first_keys_that_do_not_fit(state):
    model = nn.Linear(3, 2)
    fill(model, state, "linear", "file")
    assert torch.equal(model.weight, state["weight"])
    with pytest.raises(RequestError, match=r"1 missing: bias; 1 unexpected: scale"):
        fill(model, {"weight": state["weight"], "scale": torch.ones(1)}, "linear", "file")
    with pytest.raises(RequestError, match=r"weight \(3, 2\) instead of \(2, 3\)"):
        fill(model, {"weight": state["weight"].T, "bias": state["bias"]}, "linear", "file")


def test_file_digest_is_xxh3_of_the_bytes(tmp_path):
    (tmp_path / "f").write_bytes(b"abc" * 3_000_000)
    assert file_digest(tmp_path / "f") == xxhash.xxh3_128_hexdigest(b"abc" * 3_000_000)


def test_state_digest_sees_keys_values_shapes_and_types_but_not_order(state):
    base = state_digest(state)
    assert state_digest(dict(reversed(state.items()))) == base
    changed = state["weight"].clone()
    changed[1, 2] += 1
    for other in (
        {**state, "weight": changed},
        {**state, "weight": state["weight"].reshape(3, 2)},
        {**state, "weight": state["weight"].view(torch.int32)},
        {"w": state["weight"], "bias": state["bias"]},
    ):
        assert state_digest(other) != base
    assert state_digest({"n": torch.tensor(3)}) != state_digest({"n": torch.tensor(4)})


def test_random_weights_need_a_seed_and_are_announced(caplog):
    with pytest.raises(RequestError, match="seed"):
        note_random_weights("m", None)
    with caplog.at_level(logging.WARNING):
        assert note_random_weights("m", 4) == 4
    assert "RANDOM weights (seed 4)" in caplog.text
