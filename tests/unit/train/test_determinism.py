from __future__ import annotations

import pytest
import torch

from shared.errors import RequestError
from train.determinism import deterministic_algorithms


def settings():
    cudnn = torch.backends.cudnn
    return torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark


def test_the_mode_lasts_as_long_as_it_is_asked_for(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    before = settings()
    with deterministic_algorithms(False):
        assert settings() == before
    with deterministic_algorithms(True):
        assert settings() == (True, True, False)
    assert settings() == before


def test_what_torch_cannot_do_is_a_wrong_request():
    before = settings()
    with (
        pytest.raises(RequestError, match="deterministic=true, but torch cannot: put_"),
        deterministic_algorithms(True),
    ):
        # Without accumulation, equal places are written in any order.
        torch.zeros(3).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))
    assert settings() == before


def test_other_faults_stay_what_they_are():
    with pytest.raises(RuntimeError, match="size"), deterministic_algorithms(True):
        torch.zeros(2) @ torch.zeros(3)
