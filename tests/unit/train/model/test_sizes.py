from __future__ import annotations

import pytest

from shared.errors import RequestError
from train.model import ModelConfig, TokenSpec, build_model, two_tower


def test_a_model_that_memory_cannot_hold_is_refused_with_its_bytes(monkeypatch):
    def build(*_, **__):
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
            "allocate 17179869184 bytes. Error code 12 (Cannot allocate memory)"
        )

    monkeypatch.setattr(two_tower, "TwoTower", build)
    with pytest.raises(RequestError, match=r"one of its tensors needs 17,179,869,184 bytes \(model\.dim=256"):
        build_model(ModelConfig(), input_dim=8, tokens=TokenSpec(10, 0, 4))


def test_other_errors_of_torch_stay_what_they_are(monkeypatch):
    def build(*_, **__):
        raise RuntimeError("a bug")

    monkeypatch.setattr(two_tower, "TwoTower", build)
    with pytest.raises(RuntimeError, match="a bug"):
        build_model(ModelConfig(), input_dim=8, tokens=TokenSpec(10, 0, 4))
