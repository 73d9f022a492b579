"""Micro-batches in one process: dropout, batch norm, half precision. Several ranks: integration/test_step_equality."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from shared.errors import RequestError
from train.accumulation import hold_frozen_norms, parts, training_norms
from train.batch import Batch
from train.distributed import ALONE
from train.losses import Loss, MilNceConfig
from train.model import ModelConfig, TokenSpec, TwoTower, VideoHeadConfig, WordsConfig, build_model
from train.model.temperature import TemperatureConfig
from train.optim import OptimConfig, build_optimizer
from train.step import TrainStep


def make_model(dropout: float = 0.0) -> TwoTower:
    torch.manual_seed(1)
    config = ModelConfig(
        dim=8,
        video=VideoHeadConfig(dropout=dropout),
        text=WordsConfig(word_dim=6, hidden=16),
        temperature=TemperatureConfig(value=0.1, learned=True),
    )
    return build_model(config, input_dim=5, tokens=TokenSpec(vocab_size=30, pad_id=0, max_tokens=4)).double()


def make_step(model: TwoTower, micro_batches: int, **options) -> TrainStep:
    optimizer = build_optimizer(model, OptimConfig(name="sgd", lr=0.01))
    settings = {"factor": lambda _: 1.0, "clip": None, "total_steps": 10, "micro_batches": micro_batches, **options}
    return TrainStep(model, optimizer, Loss(MilNceConfig()), ALONE, **settings)


def make_batch(clips: int = 7) -> Batch:
    draw = torch.Generator().manual_seed(2)
    return Batch(
        torch.randn(clips, 3, 5, generator=draw, dtype=torch.float64),
        torch.ones(clips, 3, dtype=torch.bool),
        torch.randint(1, 30, (clips, 2, 4), generator=draw),
        torch.ones(clips, 2, 4, dtype=torch.bool),
        torch.arange(2) < torch.randint(0, 3, (clips,), generator=draw)[:, None],
        torch.arange(clips),
    )


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("rows", "micro_batches", "sizes"), [(7, 3, [3, 2, 2]), (6, 2, [3, 3]), (2, 5, [1, 1])])
def test_parts_cover_the_rows_and_none_is_empty(rows, micro_batches, sizes):
    found = parts(rows, micro_batches)
    assert [part.stop - part.start for part in found] == sizes
    assert [row for part in found for row in range(part.start, part.stop)] == list(range(rows))


def with_graph(model: TwoTower, micro_batches: int) -> dict[str, torch.Tensor]:
    """What is to come out: every part's graph is kept, one loss, one backward."""
    batch = make_batch()
    inputs = (batch.video_BTD, batch.video_mask_BT, batch.tokens_BKL, batch.token_mask_BKL, batch.caption_mask_BK)
    said = [model(*(x[rows] for x in inputs)) for rows in parts(len(batch), micro_batches)]
    video, text, mask = (torch.cat([one[field] for one in said]) for field in range(3))
    loss = Loss(MilNceConfig())(video, text, mask, batch.video_ids_B, temperature=said[0].temperature)
    loss.backward()
    return gradients(model)


@pytest.mark.parametrize("micro_batches", [2, 3, 7])
def test_the_second_pass_drops_what_the_first_one_dropped(micro_batches):
    model, other = make_model(dropout=0.5), make_model(dropout=0.5)
    torch.manual_seed(9)
    expected = with_graph(model, micro_batches)
    torch.manual_seed(9)
    make_step(other, micro_batches)(make_batch(), 0)
    for name, gradient in gradients(other).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-12)


def test_without_the_generators_state_the_gradients_are_others(monkeypatch):
    monkeypatch.setattr("train.accumulation.set_random_state", lambda *_: None)
    with pytest.raises(AssertionError):
        test_the_second_pass_drops_what_the_first_one_dropped(3)


def test_dropout_goes_on_after_the_step_as_after_one_pass():
    for micro_batches in (2, 3):
        model, other = make_model(dropout=0.5), make_model(dropout=0.5)
        torch.manual_seed(9)
        with_graph(model, micro_batches)
        expected = torch.rand(3)
        torch.manual_seed(9)
        make_step(other, micro_batches)(make_batch(), 0)
        assert torch.equal(torch.rand(3), expected)


def test_in_half_precision_every_weight_has_its_gradient():
    """Weights that the first pass cast without a graph are not used again by the second, within one autocast either."""
    found = []
    for micro_batches, outer in ((1, False), (3, False), (3, True)):
        model = make_model().float()
        step = make_step(model, micro_batches, precision="float32" if outer else "bfloat16")
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=outer):
            step(make_batch(), 0)
        found.append(gradients(model))
    assert found[0].keys() == found[1].keys() == found[2].keys() == dict(make_model().named_parameters()).keys()
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=0.1, atol=0.02)
        assert torch.equal(found[1][name], found[2][name])


def normed(*, frozen: bool) -> TwoTower:
    model = make_model()
    model.video.norm = nn.BatchNorm1d(3).double().requires_grad_(not frozen)
    return model


def test_a_batch_norm_that_learns_is_refused_with_what_to_do():
    step = make_step(normed(frozen=False), 2)
    before = {name: value.clone() for name, value in step.model.state_dict().items()}
    with pytest.raises(RequestError, match=r"micro_batches=2, but batch norm video.norm .*optim.freeze=\[video.norm"):
        step(make_batch(), 0)
    assert all(torch.equal(value, before[name]) for name, value in step.model.state_dict().items())
    make_step(normed(frozen=False), 1)(make_batch(), 0)


def test_a_frozen_batch_norm_keeps_its_statistics_and_parts_are_the_whole():
    whole, cut = normed(frozen=True), normed(frozen=True)
    make_step(whole, 1)(make_batch(), 0)
    make_step(cut, 3)(make_batch(), 0)
    assert not cut.video.norm.running_mean.any()
    for name, gradient in gradients(whole).items():
        torch.testing.assert_close(gradients(cut)[name], gradient, rtol=1e-9, atol=1e-12)


def test_which_norms_count_as_learning():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3, affine=False), nn.BatchNorm1d(3), nn.LayerNorm(3))
    model[2].requires_grad_(False)
    model.train()
    hold_frozen_norms(model)
    assert training_norms(model) == ["0", "1"]


def test_a_frozen_temperature_gets_no_gradient():
    model = make_model()
    model.temperature.requires_grad_(False)
    make_step(model, 3)(make_batch(), 0)
    assert "temperature.log_value" not in gradients(model)


def test_memory_is_that_of_one_part():
    """The first pass keeps no graph; the second one holds a part's at a time."""
    model, sizes = make_model(), []
    model.video.register_forward_hook(lambda *seen: sizes.append((len(seen[2]), seen[2].requires_grad)))
    make_step(model, 3)(make_batch(), 0)
    assert sizes == [(3, False), (2, False), (2, False), (3, True), (2, True), (2, True)]
