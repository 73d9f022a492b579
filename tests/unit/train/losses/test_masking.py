"""The shared pieces of the losses."""

from __future__ import annotations

import torch

from train.losses.masking import at_least_float32, masked_logsumexp


def test_a_sum_over_nothing_is_very_low_and_has_zero_gradient():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    keep = torch.tensor([[True, True], [False, False]])
    total = masked_logsumexp(x, keep, dim=1)
    assert total[1] < -1e30
    assert total.isfinite().all()
    [gradient] = torch.autograd.grad(total.sum(), x)
    torch.testing.assert_close(gradient[0], torch.softmax(x[0].detach(), 0))
    assert not gradient[1].any()


def test_only_half_precisions_are_widened():
    for given, expected in (
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float64, torch.float64),
    ):
        assert at_least_float32(torch.ones(1, dtype=given)).dtype == expected
