"""Torch as an actor runs it, for every test here, and clips of noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from preprocess.extract.runtime import configure_torch_for_determinism


@pytest.fixture(autouse=True)
def actor_torch():
    threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    configure_torch_for_determinism()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


@pytest.fixture(scope="session")
def noise_clip():
    """`noise_clip(frames, height, width, seed)` -> uint8 (T, H, W, 3)."""

    def make(frames: int, height: int, width: int, seed: int = 0) -> np.ndarray:
        return np.random.default_rng(seed).integers(0, 256, (frames, height, width, 3), dtype=np.uint8)

    return make
