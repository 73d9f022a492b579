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
    gather_plain,
    gather_rows,
    init_distributed,
    mean_over_ranks,
    pad_bags,
    shutdown_distributed,
)

ALONE = World(0, 1, 0, torch.device("cpu"))


@pytest.fixture(autouse=True)
def _without_torchrun(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
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
