from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from shared.errors import RunFailed
from train.divergence import explained, refuse_bad_weights


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_named(value):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    refuse_bad_weights(model, 3)
    model[1].weight.data[0, 0] = value
    with pytest.raises(
        RunFailed, match=r"have diverged: after step 3, 1 tensors .* first is 1\.weight; lower optim\.lr"
    ):
        refuse_bad_weights(model, 3)


def test_a_failed_validation_tells_the_largest_weight():
    model = nn.Linear(2, 2)
    model.bias.data = torch.tensor([0.0, -4e29])
    found = explained(RunFailed("the embedding of window v6 holds NaN"), model, 3)
    assert "validation after step 3: the embedding of window v6 holds NaN" in str(found)
    assert "the largest is 4e+29 in bias" in str(found)
    assert "lower optim.lr" in str(found)
