"""The state that a checkpoint holds. Several ranks: integration/test_step_equality.py and test_train_fit.py."""

from __future__ import annotations

import torch
from torch import nn

from train.sharding import full_state


def test_an_optimizer_of_one_process_has_its_state():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert full_state(optimizer) == optimizer.state_dict()
