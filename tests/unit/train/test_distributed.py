"""Reading torchrun's environment, and collectives in a world of one. Several ranks: test_step_equality."""

from __future__ import annotations

import socket

import pytest
import torch
import torch.distributed as dist

from shared.errors import EnvironmentLacking, RequestError
from train.distributed import (
    World,
    agree_on_bags,
    any_rank,
    broadcast_seed,
    distributed_world,
    environment_rank,
    gather_plain,
    gather_rows,
    init_distributed,
    mean_over_ranks,
    pad_bags,
    shutdown_distributed,
)
from train.stopping import recorded_exit

ALONE = World(0, 1, 0, torch.device("cpu"))


NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(autouse=True)
def _without_torchrun(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_without_torchrun_the_world_is_one_and_there_is_no_group():
    with distributed_world("cpu") as world:
        assert world == ALONE
        assert world.is_main
        assert not dist.is_initialized()
    shutdown_distributed()


def test_torchrun_with_one_process_needs_no_group(monkeypatch):
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    assert init_distributed("cpu") == ALONE
    assert not dist.is_initialized()


def test_a_half_set_environment_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RequestError, match="RANK, LOCAL_RANK"):
        init_distributed("cpu")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("RANK", "x", "RANK='x', expected a whole number from 0 to 1"),
        ("RANK", "2", r"RANK='2', expected a whole number from 0 to 1 \(RANK counts from 0, below WORLD_SIZE\)"),
        ("RANK", "-1", "RANK='-1', expected"),
        ("RANK", "9" * 5000, "RANK='9+', expected"),
        ("WORLD_SIZE", "two", "WORLD_SIZE='two', expected a whole number of at least 1"),
        ("WORLD_SIZE", "", "WORLD_SIZE='', expected"),
        ("LOCAL_RANK", "1.0", "LOCAL_RANK='1.0', expected a whole number of at least 0"),
        ("MASTER_PORT", "abc", "MASTER_PORT='abc', expected a whole number from 1 to 65535"),
        ("MASTER_PORT", "70000", "MASTER_PORT='70000', expected"),
        ("MASTER_PORT", None, "but not MASTER_PORT; start several processes with"),
        ("MASTER_ADDR", None, "but not MASTER_ADDR; start several processes with"),
    ],
)
def test_what_the_environment_says_wrong_is_named(monkeypatch, name, value, message):
    given = dict(zip(NAMES, ("1", "2", "1", "localhost", "1234"), strict=True)) | {name: value}
    for key, text in given.items():
        if text is not None:
            monkeypatch.setenv(key, text)
    with pytest.raises(RequestError, match=message):
        init_distributed("cpu", timeout_s=1)


def test_a_rank_that_is_none_is_refused_before_anything_is_written(monkeypatch, tmp_path):
    assert environment_rank() == 0
    monkeypatch.setenv("RANK", "x")
    with pytest.raises(RequestError, match="RANK='x'"), recorded_exit(tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()


def test_the_group_is_destroyed_when_the_body_raises(monkeypatch):
    destroyed = []
    monkeypatch.setattr("train.distributed.shutdown_distributed", lambda: destroyed.append(True))
    with pytest.raises(KeyError), distributed_world("cpu"):
        raise KeyError("body")
    assert destroyed == [True]


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_cuda_without_a_gpu_says_so():
    assert init_distributed("auto").device.type == "cpu"
    with pytest.raises(EnvironmentLacking, match="device=cpu"):
        init_distributed("cuda")


def test_collectives_of_one_are_identities():
    x = torch.randn(3, 2, requires_grad=True)
    assert gather_rows(x, ALONE) is x
    assert gather_plain(x, ALONE) is x
    assert agree_on_bags(3, 5, ALONE) == 5
    assert agree_on_bags(3, 0, ALONE) == 1
    assert broadcast_seed(17, ALONE) == 17
    assert [any_rank(value, ALONE) for value in (True, False)] == [True, False]
    assert torch.equal(mean_over_ranks(x, ALONE), x.detach())
    assert not mean_over_ranks(x, ALONE).requires_grad


def test_bags_are_padded_with_empty_slots():
    text, mask = torch.ones(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    assert pad_bags(text, 3) is text
    assert pad_bags(text, 5).shape == (2, 5, 4)
    assert not pad_bags(text, 5)[:, 3:].any()
    assert pad_bags(text, 5, 9)[:, 3:].eq(9).all()
    assert pad_bags(mask, 5).tolist() == [[True] * 3 + [False] * 2] * 2


def test_a_port_in_use_is_named_with_its_remedy(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        environment = {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        for name, value in environment.items():
            monkeypatch.setenv(name, str(value))
        message = f"MASTER_PORT={port} is in use on this host.*`torchrun --standalone`"
        with pytest.raises(EnvironmentLacking, match=message):
            init_distributed("cpu", timeout_s=5)
