"""The dictionary of losses, its configuration, and what holds for all of them, whole or in tiles."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from train.losses import LOSSES, Loss, LossConfig, MilNceConfig

OPTIONS = {
    "mil_nce": {},
    "mil_nce twice": {"positives": "twice"},
    "mil_nce same video": {"mask_same_video": False},
    "info_nce": {},
    "dual_softmax": {},
    "dual_softmax even": {"prior": 3.0},
    "sigmoid": {"bias": torch.tensor(-1.5, dtype=torch.float64, requires_grad=True)},
}


def evaluate(name, bags, tile, temperature=0.4, **options):
    """The loss and its gradients: video, text, temperature and, for sigmoid, bias."""
    video, text, mask, ids = bags
    leaves = [x.detach().clone().requires_grad_() for x in (video, text)]
    exact = torch.float64 if video.dtype == torch.float64 else torch.float32
    leaves.append(torch.tensor(temperature, dtype=exact, requires_grad=True))
    arguments = OPTIONS[name] | options
    if "bias" in arguments:
        leaves.append(arguments["bias"])
    loss = LOSSES[name.split()[0]](*leaves[:2], mask, ids, temperature=leaves[2], tile=tile, **arguments)
    return loss, torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("tile", [1, 3, 4, 20])
def test_tiles_give_the_loss_and_gradients_of_the_whole_matrix(bags, name, tile):
    drawn = bags(clips=11, candidates=3, seed=5)
    for ours, plain in zip(evaluate(name, drawn, tile), evaluate(name, drawn, 0), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("tile", [0, 2])
def test_gradients(bags, name, tile):
    video, text, mask, ids = bags(clips=4, candidates=2, dim=3)
    bias = OPTIONS[name].get("bias")
    inputs = [video, text, torch.tensor(0.7, dtype=torch.float64), *([] if bias is None else [bias.detach().clone()])]

    def loss(video, text, temperature, *bias):
        options = OPTIONS[name] | ({"bias": bias[0]} if bias else {})
        return LOSSES[name.split()[0]](video, text, mask, ids, temperature=temperature, tile=tile, **options)

    assert torch.autograd.gradcheck(loss, [x.requires_grad_() for x in inputs])


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("tile", [0, 2])
@pytest.mark.parametrize("rubbish", [1e30, math.nan, math.inf])
def test_empty_slots_reach_neither_value_nor_gradient(bags, name, tile, rubbish):
    video, text, mask, ids = bags()
    dirty = torch.where(mask.unsqueeze(-1), text, torch.full_like(text, rubbish))
    (clean_loss, clean), (loss, gradients) = (evaluate(name, (video, x, mask, ids), tile) for x in (text, dirty))
    assert torch.equal(loss, clean_loss)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(gradients, clean, strict=True))
    assert not gradients[1][~mask].any()


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("tile", [0, 2])
@pytest.mark.parametrize("clips", [1, 4])
def test_without_any_candidate_loss_and_gradients_are_zero(bags, name, tile, clips):
    video, text, mask, ids = bags(clips=clips)
    loss, gradients = evaluate(name, (video, text, torch.zeros_like(mask), ids), tile)
    assert loss.item() == 0
    assert not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("tile", [0, 4])
def test_under_autocast_and_from_half_precision_everything_is_computed_in_float32(bags, name, tile):
    video, text, mask, ids = bags(clips=9)
    half = [x.to(torch.bfloat16) for x in (video, text)]
    options = {"bias": torch.tensor(-1.5, requires_grad=True)} if "bias" in OPTIONS[name] else {}
    expected = evaluate(name, (*(x.float() for x in half), mask, ids), tile, 0.05, **options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        from_half = evaluate(name, (*half, mask, ids), tile, 0.05, **options)[0]
        inside = evaluate(name, (*(x.float() for x in half), mask, ids), tile, 0.05, **options)
    assert from_half.dtype == torch.float32
    assert torch.equal(from_half, expected[0])
    assert torch.equal(inside[0], expected[0])


@pytest.mark.parametrize("name", OPTIONS)
def test_tiles_keep_the_gradient_in_float32_even_where_backward_runs_under_autocast(bags, name):
    video, text, mask, ids = bags(clips=9)
    options = {"bias": torch.tensor(-1.5, requires_grad=True)} if "bias" in OPTIONS[name] else {}
    drawn = (video.float(), text.float(), mask, ids)
    _, expected = evaluate(name, drawn, 4, 0.05, **options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, actual = evaluate(name, drawn, 4, 0.05, **options)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(actual, expected, strict=True))


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("tile", [0, 2])
def test_large_logits_stay_finite(bags, name, tile):
    video, text, mask, ids = bags()
    options = {"bias": torch.tensor(-1.5, requires_grad=True)} if "bias" in OPTIONS[name] else {}
    loss, gradients = evaluate(name, (video.float() * 1e3, text.float() * 1e3, mask, ids), tile, 0.01, **options)
    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", [name for name in OPTIONS if "dual" not in name])
def test_a_clamped_gradient_is_bounded_at_every_logit_own_ones_included(bags, name):
    """With unit vectors as texts, the gradient of a video is that of its logits."""
    clips, bound = 5, 0.06
    video = bags(clips=clips, dim=clips)[0]
    text, mask = torch.eye(clips, dtype=torch.float64).unsqueeze(1), torch.ones(clips, 1, dtype=torch.bool)
    drawn = (video, text, mask, torch.arange(clips))
    free, *clamped = (
        evaluate(name, drawn, tile, 1.0, clamp_gradient=clamp)[1][0] * clips
        for tile, clamp in ((0, None), (0, bound), (2, bound))
    )
    assert free.abs().max() > bound > free.abs().min()
    for gradient in clamped:
        torch.testing.assert_close(gradient, free.clamp(-bound, bound))


def test_every_loss_has_a_config_of_its_name_and_builds(bags):
    for name in LOSSES.keys() - {"distill"}:  # which needs a teacher: test_distill.py
        config = TypeAdapter(LossConfig).validate_python({"name": name})
        video, text, mask, ids = bags()
        bias = torch.tensor(-1.0) if name == "sigmoid" else None
        assert Loss(config)(video, text, mask, ids, temperature=1.0, bias=bias).isfinite()


def test_options_reach_the_loss(bags):
    video, text, mask, ids = bags()
    once, twice = (Loss(MilNceConfig(positives=p))(video, text, mask, ids, temperature=1.0) for p in ("once", "twice"))
    assert twice > once


def test_one_sampled_candidate_is_the_loss_of_some_single_candidates(bags):
    video, text, _, ids = bags(clips=4, candidates=2)
    mask = torch.ones(4, 2, dtype=torch.bool)
    loss = Loss(MilNceConfig(sample_candidate=True), seed=3)
    values = {loss(video, text, mask, ids, temperature=1.0, step=step).item() for step in range(200)}
    singles = set()
    for choice in range(16):
        chosen = torch.tensor([[bool(choice >> i & 1), not choice >> i & 1] for i in range(4)])
        singles.add(LOSSES["mil_nce"](video, text, chosen, ids, temperature=1.0).item())
    assert values == singles


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"name": "info_nce", "positives": "twice"}, "positives"),
        ({"name": "dual_softmax", "clamp_gradient": 0.1}, "clamp_gradient"),
        ({"name": "dual_softmax", "prior": 0}, "prior"),
        ({"name": "mil_nce", "tile": -1}, "tile"),
        ({"name": "mil_nce", "tile": "big"}, "tile"),
        ({"name": "mil_nce", "clamp_gradient": 0}, "clamp_gradient"),
        ({"name": "distill"}, "teacher"),
        ({"name": "distill", "teacher": "t", "base": {"name": "distill", "teacher": "t"}}, "base"),
    ],
)
def test_what_a_loss_cannot_do_is_refused(config, said):
    with pytest.raises(ValidationError, match=said):
        TypeAdapter(LossConfig).validate_python(config)
