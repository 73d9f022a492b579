"""Distillation against torch's own Kullback-Leibler divergence, and what a teacher may and may not change."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from train.losses import DistillConfig, Loss, MilNceConfig, Teacher, distill, mil_nce


def teacher_of(clips: int, candidates: int, dim: int = 6) -> Teacher:
    draw = torch.Generator().manual_seed(17)
    video = torch.randn(clips, dim, generator=draw, dtype=torch.float64)
    text = torch.randn(clips, candidates, dim, generator=draw, dtype=torch.float64)
    return Teacher(video, text, torch.tensor(0.9, dtype=torch.float64))


def evaluate(bags, teacher, temperature=0.4, **options):
    """The loss and its gradients: video, text and temperature."""
    video, text, mask, ids = bags
    exact = torch.float64 if video.dtype == torch.float64 else torch.float32
    leaves = [x.detach().clone().requires_grad_() for x in (video, text, torch.tensor(temperature, dtype=exact))]
    loss = distill(*leaves[:2], mask, ids, temperature=leaves[2], teacher=teacher, **options)
    return loss, torch.autograd.grad(loss, leaves)


def divergence(student, teacher, dim):
    """Mean over the rows (dim 1) or columns (dim 0)."""
    p, q = teacher.softmax(dim), student.log_softmax(dim)
    return F.kl_div(q, p, reduction="sum") / student.shape[1 - dim]


@pytest.mark.parametrize("teacher_temperature", [None, 0.5])
@pytest.mark.parametrize("tile", [0, 1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_is_half_of_both_divergences_and_so_are_the_gradients(bags, seed, tile, teacher_temperature):
    video, text, mask, ids = bags(clips=5, seed=seed)
    teacher = teacher_of(5, 3)
    leaves = [x.clone().requires_grad_() for x in (video, text, torch.tensor(0.4, dtype=torch.float64))]
    student = leaves[0] @ leaves[1][mask].T / leaves[2]
    shown = teacher.video_BD @ teacher.text_NKD[mask].T / (teacher_temperature or 0.9)
    expected = (divergence(student, shown, 1) + divergence(student, shown, 0)) / 2
    gradients = torch.autograd.grad(expected, leaves)
    loss, ours = evaluate((video, text, mask, ids), teacher, tile=tile, teacher_temperature=teacher_temperature)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-12, atol=1e-14)
    for our, their in zip(ours, gradients, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("tile", [0, 2])
def test_a_student_that_sees_what_the_teacher_sees_has_nothing_to_learn(bags, tile):
    drawn = bags(clips=5)
    same = Teacher(drawn[0], drawn[1], torch.tensor(0.4, dtype=torch.float64))
    loss, gradients = evaluate(drawn, same, tile=tile)
    assert loss.item() == pytest.approx(0, abs=1e-14)
    assert all(gradient.abs().max() < 1e-14 for gradient in gradients)
    assert evaluate(drawn, same._replace(temperature=torch.tensor(0.2)), tile=tile)[0] > 0.01


@pytest.mark.parametrize("tile", [0, 2])
@pytest.mark.parametrize("rubbish", [1e30, math.nan, math.inf])
def test_empty_slots_reach_neither_value_nor_gradient(bags, tile, rubbish):
    video, text, mask, ids = bags()
    teacher = teacher_of(5, 3)
    dirty = torch.where(mask.unsqueeze(-1), text, torch.full_like(text, rubbish))
    dirty_teacher = teacher._replace(text_NKD=teacher.text_NKD.where(mask.unsqueeze(-1), rubbish))
    clean_loss, clean = evaluate((video, text, mask, ids), teacher, tile=tile)
    loss, gradients = evaluate((video, dirty, mask, ids), dirty_teacher, tile=tile)
    assert torch.equal(loss, clean_loss)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(gradients, clean, strict=True))
    assert not gradients[1][~mask].any()


@pytest.mark.parametrize("tile", [0, 2])
@pytest.mark.parametrize("clips", [1, 4])
def test_without_any_candidate_loss_and_gradients_are_zero(bags, tile, clips):
    video, text, mask, ids = bags(clips=clips)
    loss, gradients = evaluate((video, text, torch.zeros_like(mask), ids), teacher_of(clips, 3), tile=tile)
    assert loss.item() == 0
    assert not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("tile", [0, 4])
def test_under_autocast_and_from_half_precision_everything_is_computed_in_float32(bags, tile):
    video, text, mask, ids = bags(clips=9)
    half, teacher = [x.to(torch.bfloat16) for x in (video, text)], Teacher(*(x.bfloat16() for x in teacher_of(9, 3)))
    teacher = teacher._replace(temperature=torch.tensor(0.9))
    raised = Teacher(*(x.float() for x in teacher))
    expected = evaluate((*(x.float() for x in half), mask, ids), raised, tile=tile)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = evaluate((*half, mask, ids), teacher, tile=tile)
        _, gradients = evaluate((*(x.float() for x in half), mask, ids), teacher, tile=tile)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, expected[0])
    if tile:  # an untiled loss is differentiated outside of autocast by the step
        assert all(gradient.dtype == torch.float32 for gradient in gradients)


def test_the_teacher_gets_no_gradient(bags):
    drawn = bags(clips=5)
    teacher = Teacher(*(x.clone().requires_grad_() for x in teacher_of(5, 3)))
    loss, _ = evaluate(drawn, teacher, tile=2)
    assert all(x.grad is None for x in teacher)
    assert loss > 0


def test_beside_another_loss_it_counts_by_its_weight(bags):
    video, text, mask, ids = bags(clips=5)
    given, teacher = (video, text, mask, ids), teacher_of(5, 3)
    config = DistillConfig(teacher="t", base=MilNceConfig(positives="twice"), weight=0.3, teacher_temperature=0.7)
    both = Loss(config)(*given, temperature=0.4, teacher=teacher)
    alone = Loss(config.model_copy(update={"base": None}))(*given, temperature=0.4, teacher=teacher)
    plain = mil_nce(*given, temperature=0.4, positives="twice")
    torch.testing.assert_close(both, plain + alone, rtol=1e-14, atol=0)
    whole = distill(*given, temperature=0.4, teacher=teacher, teacher_temperature=0.7)
    torch.testing.assert_close(alone, 0.3 * whole, rtol=1e-14, atol=0)
