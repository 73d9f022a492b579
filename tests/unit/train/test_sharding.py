"""What can be spread and what is said of it. Several ranks: integration/test_step_equality.py and test_train_fit.py."""

from __future__ import annotations

import pytest
import torch

from shared.errors import RequestError
from train.distributed import ALONE, World
from train.sharding import check_offload, described, shards_towers

CPU = World(0, 2, 0, torch.device("cpu"))
GPU = World(0, 2, 0, torch.device("cuda"))


def test_one_process_spreads_nothing():
    assert [shards_towers(shard, CPU.size) for shard in ("none", 1, 2, 3)] == [False, False, True, True]
    assert not any(shards_towers(shard, ALONE.size) for shard in ("none", 1, 2, 3))


def test_says_what_is_spread_and_where_it_lies():
    assert described("none", False, CPU) is None
    assert described(1, False, ALONE) == (
        "nothing: shard=1 spreads the optimizer's state over ranks, and this is one process"
    )
    assert described(1, False, CPU) == "the optimizer's state over 2 ranks (shard=1)"
    assert described(2, True, CPU) == "gradients and the optimizer's state over 2 ranks (shard=2)"
    assert described(3, True, GPU) == (
        "parameters, gradients and the optimizer's state over 2 ranks (shard=3), each share in CPU memory"
    )


def test_one_gpu_process_has_nothing_to_offload():
    check_offload(True, GPU)
    check_offload(True, ALONE)
    check_offload(False, World(0, 1, 0, torch.device("cuda")))
    with pytest.raises(RequestError, match=r"offload=true on one process, .* start several ranks"):
        check_offload(True, World(0, 1, 0, torch.device("cuda")))
