"""The typed batch."""

from __future__ import annotations

import torch

from train.batch import Batch


def test_length_is_the_clips_and_every_field_moves():
    batch = Batch(
        torch.zeros(3, 5, 2),
        torch.ones(3, 5, dtype=torch.bool),
        torch.zeros(3, 4, 6, dtype=torch.int32),
        torch.ones(3, 4, 6, dtype=torch.bool),
        torch.ones(3, 4, dtype=torch.bool),
        torch.arange(3),
    )
    moved = batch.to(torch.device("meta"))
    assert len(batch) == len(moved) == 3
    assert {value.device.type for value in moved.present.values()} == {"meta"}
    assert moved.tokens_BKL.dtype == torch.int32
