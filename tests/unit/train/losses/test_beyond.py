"""Remembered negatives: every loss against sums of one exponential at a time, in tiles, and what may not reach it."""

from __future__ import annotations

import math

import pytest
import torch

from train.losses import LOSSES, Beyond

OPTIONS = {
    "mil_nce": {},
    "mil_nce twice": {"positives": "twice"},
    "info_nce": {},
    "dual_softmax": {"prior": 1.5},
    "sigmoid": {"bias": -1.5},
}
SIDES = ["both", "texts", "videos"]


def remembered(seed: int = 4, videos: int = 5, texts: int = 4, side: str = "both") -> Beyond:
    """Ids 0 and 6 are of clips in `bags`, the first two videos and one text among them."""
    draw = torch.Generator().manual_seed(seed)
    beyond = Beyond(
        torch.randn(videos, 4, generator=draw, dtype=torch.float64),
        torch.tensor([0, 6, 100, 101, 102])[:videos],
        torch.randn(texts, 4, generator=draw, dtype=torch.float64),
        torch.tensor([100, 6, 103, 100])[:texts],
    )
    return {"both": beyond, "texts": beyond.texts_only(), "videos": beyond.videos_only()}[side]


def evaluate(name, bags, beyond, **options):
    """The loss and its gradients: video, text and temperature."""
    video, text, mask, ids = bags
    exact = torch.float64 if video.dtype == torch.float64 else torch.float32
    leaves = [x.detach().clone().requires_grad_() for x in (video, text, torch.tensor(0.4, dtype=exact))]
    arguments = OPTIONS[name] | options
    loss = LOSSES[name.split()[0]](*leaves[:2], mask, ids, temperature=leaves[2], beyond=beyond, **arguments)
    return loss, torch.autograd.grad(loss, leaves)


def by_loops(
    name, video, text, mask, ids, beyond, temperature, mask_same_video, *, positives="once", prior=1.0, bias=0.0
):
    """Rows are clips and remembered videos (r, None), columns texts and remembered texts; no sum has a tensor."""
    rows = [(video[i], int(ids[i]), i) for i in range(len(video))]
    rows += [(beyond.video_QD[q], int(beyond.video_ids_Q[q]), None) for q in range(len(beyond.video_QD))]
    columns = [(text[i, k], int(ids[i]), i) for i in range(len(video)) for k in range(mask.shape[1]) if mask[i, k]]
    columns += [(beyond.text_PD[p], int(beyond.text_ids_P[p]), None) for p in range(len(beyond.text_PD))]
    logits = {}
    for r, (row, row_id, clip) in enumerate(rows):
        for c, (column, column_id, owner) in enumerate(columns):
            both_remembered = clip is None and owner is None
            own = clip is not None and clip == owner
            in_batch = clip is not None and owner is not None
            same_video = row_id == column_id and (mask_same_video or not in_batch)
            if own or not (both_remembered or same_video):
                logits[r, c] = row @ column / temperature + bias
    bag = {i: [c for c, column in enumerate(columns) if column[2] == i] for i in range(len(video))}
    anchors = [i for i in bag if bag[i]]
    total = 0
    if name == "sigmoid":
        for (r, c), logit in logits.items():
            sign = 1 if columns[c][2] == r and r < len(video) else -1
            total = total + torch.log1p(torch.exp(-sign * logit))
        return total / len(anchors)
    out, back = logits, logits
    if name == "dual_softmax":
        soft = {pair: torch.exp(logit / prior) for pair, logit in logits.items()}
        over_rows = {c: sum(x for (_, d), x in soft.items() if d == c) for c in range(len(columns))}
        over_columns = {r: sum(x for (s, _), x in soft.items() if s == r) for r in range(len(rows))}
        out = {(r, c): logit * soft[r, c] / over_rows[c] for (r, c), logit in logits.items()}
        back = {(r, c): logit * soft[r, c] / over_columns[r] for (r, c), logit in logits.items()}
    for i in anchors:
        own = sum(torch.exp(out[i, c]) for c in bag[i])
        own_back = sum(torch.exp(back[i, c]) for c in bag[i])
        others = sum(torch.exp(x) for (r, c), x in out.items() if r == i and c not in bag[i])
        others_back = sum(torch.exp(x) for (r, c), x in back.items() if r != i and c in bag[i])
        if name == "mil_nce":
            share = 2 if positives == "twice" else 1
            total = total + torch.log((share * own + others + others_back) / own)
        else:
            total = total + (torch.log((own + others) / own) + torch.log((own_back + others_back) / own_back)) / 2
    return total / len(anchors)


@pytest.mark.parametrize("mask_same_video", [True, False])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", OPTIONS)
def test_equals_the_loops_and_so_do_the_gradients(bags, name, side, mask_same_video):
    drawn, beyond = bags(clips=5, seed=2), remembered(side=side)
    leaves = [x.clone().requires_grad_() for x in (*drawn[:2], torch.tensor(0.4, dtype=torch.float64))]
    expected = by_loops(name.split()[0], *leaves[:2], *drawn[2:], beyond, leaves[2], mask_same_video, **OPTIONS[name])
    gradients = torch.autograd.grad(expected, leaves)
    for tile in (0, 2):
        loss, ours = evaluate(name, drawn, beyond, tile=tile, mask_same_video=mask_same_video)
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-12, atol=0)
        for our, their in zip(ours, gradients, strict=True):
            torch.testing.assert_close(our, their, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("tile", [1, 3, 20])
@pytest.mark.parametrize("name", OPTIONS)
def test_tiles_give_the_loss_and_gradients_of_the_whole_matrix(bags, name, tile):
    drawn, beyond = bags(clips=11, seed=5), remembered()
    options = {} if name == "dual_softmax" else {"clamp_gradient": 0.02}
    (loss, ours), (whole, theirs) = (evaluate(name, drawn, beyond, tile=t, **options) for t in (tile, 0))
    torch.testing.assert_close(loss, whole, rtol=1e-12, atol=1e-14)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("tile", [0, 2])
@pytest.mark.parametrize("name", OPTIONS)
def test_nothing_remembered_is_the_loss_of_the_batch(bags, name, tile):
    drawn = bags()
    (loss, ours), (plain, theirs) = (
        evaluate(name, drawn, beyond, tile=tile) for beyond in (remembered(videos=0, texts=0), None)
    )
    assert torch.equal(loss, plain)
    assert all(torch.equal(our, their) for our, their in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("tile", [0, 2])
@pytest.mark.parametrize("name", OPTIONS)
def test_of_its_own_video_a_clip_knows_nothing(bags, name, tile):
    """Clips 0 and 4 are of video 0."""
    drawn = tuple(x[[0, 4]] for x in bags())
    beyond = remembered()
    of_it = beyond._replace(video_ids_Q=torch.zeros(5, dtype=torch.int64), text_ids_P=torch.zeros(4, dtype=torch.int64))
    with_own, plain, with_others = (evaluate(name, drawn, x, tile=tile)[0] for x in (of_it, None, beyond))
    torch.testing.assert_close(with_own, plain, rtol=1e-14, atol=0)
    assert with_others != plain


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("tile", [0, 2])
@pytest.mark.parametrize("rubbish", [1e30, math.nan, math.inf])
def test_empty_slots_reach_neither_value_nor_gradient(bags, name, tile, rubbish):
    video, text, mask, ids = bags()
    dirty = torch.where(mask.unsqueeze(-1), text, torch.full_like(text, rubbish))
    (clean_loss, clean), (loss, gradients) = (
        evaluate(name, (video, x, mask, ids), remembered(), tile=tile) for x in (text, dirty)
    )
    assert torch.equal(loss, clean_loss)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(gradients, clean, strict=True))
    assert not gradients[1][~mask].any()


@pytest.mark.parametrize("tile", [0, 2])
@pytest.mark.parametrize("name", OPTIONS)
def test_without_any_candidate_only_the_sigmoid_loss_learns(bags, name, tile):
    """There every pair is judged by itself, that of a video and a remembered text too."""
    video, text, mask, ids = bags()
    loss, gradients = evaluate(name, (video, text, torch.zeros_like(mask), ids), remembered(), tile=tile)
    if name != "sigmoid":
        assert loss.item() == 0
        assert not any(gradient.any() for gradient in gradients)
    assert not gradients[1].any()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("tile", [0, 4])
def test_under_autocast_and_from_half_precision_everything_is_computed_in_float32(bags, name, tile):
    video, text, mask, ids = bags(clips=9)
    half = [x.to(torch.bfloat16) for x in (video, text)]
    memory = Beyond(*(x.to(torch.bfloat16) if x.is_floating_point() else x for x in remembered()))
    raised = Beyond(*(x.float() if x.is_floating_point() else x for x in memory))
    expected = evaluate(name, (*(x.float() for x in half), mask, ids), raised, tile=tile)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = evaluate(name, (*half, mask, ids), memory, tile=tile)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, expected[0])


@pytest.mark.parametrize("tile", [0, 2])
def test_what_is_remembered_gets_no_gradient(bags, tile):
    video, text, mask, ids = bags()
    beyond = remembered()
    kept = [beyond.video_QD.requires_grad_(), beyond.text_PD.requires_grad_()]
    for name in OPTIONS:
        loss = LOSSES[name.split()[0]](
            video.clone().requires_grad_(), text, mask, ids, temperature=0.4, tile=tile, beyond=beyond, **OPTIONS[name]
        )
        loss.backward()
    assert [x.grad for x in kept] == [None, None]
