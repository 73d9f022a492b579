"""Masked pooling: values, empty sequences, padding that holds anything."""

from __future__ import annotations

import math

import pytest
import torch

from train.model.pooling import AttentionPool, MaskedMax, MaskedMean

POOLS = [MaskedMean(), MaskedMax(), AttentionPool(3).double()]
MASK = torch.tensor([[True, True, False], [False, True, False], [False, False, False]])


@pytest.fixture
def rows():
    return torch.randn(3, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_mean_and_max_over_valid_rows(rows):
    torch.testing.assert_close(MaskedMean()(rows, MASK)[0], rows[0, :2].mean(0))
    torch.testing.assert_close(MaskedMax()(rows, MASK)[0], rows[0, :2].amax(0))


def test_attention_starts_at_the_mean_and_follows_its_scores(rows):
    pool = AttentionPool(3).double()
    torch.testing.assert_close(pool(rows, MASK), MaskedMean()(rows, MASK))
    torch.nn.init.constant_(pool.score.weight, 2.0)
    weights = torch.softmax(2 * rows[0, :2].sum(1), dim=0)
    torch.testing.assert_close(pool(rows, MASK)[0], weights @ rows[0, :2])


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: type(pool).__name__)
@pytest.mark.parametrize("rubbish", [math.nan, math.inf, 1e300])
def test_padding_reaches_neither_value_nor_gradient(rows, pool, rubbish):
    clean = torch.where(MASK[..., None], rows, 0.0).requires_grad_()
    dirty = torch.where(MASK[..., None], rows, rubbish).requires_grad_()
    values = [pool(x, MASK) for x in (clean, dirty)]
    assert torch.equal(*values)
    gradients = [torch.autograd.grad(v.square().sum(), x)[0] for v, x in zip(values, (clean, dirty), strict=True)]
    assert torch.equal(*gradients)
    assert not gradients[1][~MASK].any()


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: type(pool).__name__)
def test_one_valid_row_is_itself_and_none_is_zero(rows, pool):
    pooled = pool(rows, MASK)
    torch.testing.assert_close(pooled[1], rows[1, 1])
    assert not pooled[2].any()
    gradient = torch.autograd.grad(pool(rows.requires_grad_(), MASK)[2].sum(), rows)[0]
    assert not gradient.any()
