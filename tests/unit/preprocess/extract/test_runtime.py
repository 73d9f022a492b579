from __future__ import annotations

import os

import pytest
import torch

from preprocess.extract.runtime import check_device, configure_torch_for_determinism, out_of_memory
from shared.errors import EnvironmentLacking


def test_torch_is_set_to_repeat_itself():
    torch.set_num_threads(2)
    torch.backends.cudnn.benchmark = True
    configure_torch_for_determinism()
    assert torch.get_num_threads() == 1
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.benchmark
    assert not torch.backends.cudnn.allow_tf32
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_a_device_that_is_not_there_is_named_with_what_to_do():
    check_device(torch.device("cpu"))
    missing = torch.device("cuda", torch.cuda.device_count())
    with pytest.raises(EnvironmentLacking, match=f"device {missing} was asked for.*`device: cpu`"):
        check_device(missing)


def test_the_signal_carries_the_allocators_words():
    signal = out_of_memory(torch.OutOfMemoryError("tried to allocate 3 GiB"), 8)
    assert (signal.batch_size, "tried to allocate 3 GiB" in signal.memory_summary) == (8, True)
    assert str(signal) == "out of memory with 8 clips per call"
