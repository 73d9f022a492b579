"""Wholes of shares and shares of wholes. Several ranks: integration/test_step_equality.py and test_train_fit.py."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from train.distributed import ALONE, World
from train.sharded_state import (
    full_state,
    gradient_norm,
    held,
    load_full_state,
    load_whole_model,
    share,
    whole,
    whole_model,
)


@pytest.mark.parametrize(("rows", "of_ranks"), [(7, [3, 3, 1]), (4, [2, 2, 0]), (1, [1, 0, 0]), (6, [2, 2, 2])])
def test_shares_are_the_rows_in_rank_order_and_the_last_may_be_empty(rows, of_ranks):
    x = torch.arange(2.0 * rows).view(rows, 2)
    shares = [share(x, World(rank, 3, 0, torch.device("cpu"))) for rank in range(3)]
    assert [len(one) for one in shares] == of_ranks
    assert torch.equal(torch.cat(shares), x)


def test_what_is_not_spread_stays_as_it_is():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert full_state(optimizer, ALONE) == optimizer.state_dict()
    torch.testing.assert_close(whole_model(model, ALONE), model.state_dict())
    assert whole(model.weight, ALONE) is model.weight
    assert held(model.weight) is model.weight
    norm = gradient_norm(model.parameters(), ALONE)
    assert torch.equal(norm, nn.utils.get_total_norm([model.weight.grad, model.bias.grad]))
    again = nn.Linear(2, 2)
    theirs = torch.optim.AdamW(again.parameters())
    load_whole_model(again, whole_model(model, ALONE), ALONE)
    load_full_state(theirs, full_state(optimizer, ALONE), ALONE)
    torch.testing.assert_close((again.state_dict(), theirs.state_dict()), (model.state_dict(), optimizer.state_dict()))
