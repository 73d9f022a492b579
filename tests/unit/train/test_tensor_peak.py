from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint

from train.tensor_peak import TensorPeak

MIB = 1 << 20


def floats(mib: int) -> torch.Tensor:
    return torch.ones(mib * MIB // 4)


def test_what_lives_at_once_counts_and_what_was_before_does_not():
    before = floats(8)
    with TensorPeak() as tensors:
        before.mul_(2)
        view = before[: MIB // 4]
        one = floats(1)
        two = one + 1
        del one, two
        three = floats(3).view(3, -1)
        del view
    assert tensors.peak == 3 * MIB
    assert len(three) == 3


def test_a_second_use_begins_where_nothing_lives():
    for _ in range(2):
        with TensorPeak() as tensors:
            kept = floats(2)
            kept.add_(floats(1)[0])
        assert tensors.peak == 3 * MIB


def test_a_backward_counts_and_checkpoints_lower_it():
    """Ten sines of 1 MiB: each keeps its input; checkpointed, one is kept and the rest made again."""

    def ten(x):
        for _ in range(10):
            x = x.sin()
        return x

    def peak(run):
        leaf = floats(1).requires_grad_()
        with TensorPeak() as tensors:
            run(leaf).backward(torch.ones_like(leaf))
        assert leaf.grad is not None
        return tensors.peak

    # Plain: ten outputs, the gradient that comes in, and at each step cos(x) and the product with it.
    plain = peak(ten)
    assert 11 * MIB <= plain <= 14 * MIB
    halves = peak(lambda x: checkpoint(ten, checkpoint(ten, x, use_reentrant=False), use_reentrant=False))
    twice = peak(lambda x: ten(ten(x)))
    assert halves < twice - 5 * MIB
