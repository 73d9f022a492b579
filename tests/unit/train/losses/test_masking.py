"""The shared pieces of the losses."""

from __future__ import annotations

import torch

from train.losses.masking import masked_logsumexp, mean_over, negative_pairs


def test_a_sum_over_nothing_is_very_low_and_has_zero_gradient():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    keep = torch.tensor([[True, True], [False, False]])
    total = masked_logsumexp(x, keep, dim=1)
    assert total[1] < -1e30
    assert total.isfinite().all()
    [gradient] = torch.autograd.grad(total.sum(), x)
    torch.testing.assert_close(gradient[0], torch.softmax(x[0].detach(), 0))
    assert not gradient[1].any()


def test_clips_of_one_video_are_no_negatives_unless_asked():
    ids = torch.tensor([4, 9, 4])
    assert negative_pairs(ids, True).tolist() == [[False, True, False], [True, False, True], [False, True, False]]
    assert negative_pairs(ids, False).equal(~torch.eye(3, dtype=torch.bool))


def test_mean_over_kept_entries_ignores_the_rest():
    x = torch.tensor([1.0, float("nan"), 3.0])
    assert mean_over(x, torch.tensor([True, False, True])) == 2
    assert mean_over(x, torch.zeros(3, dtype=torch.bool)) == 0
