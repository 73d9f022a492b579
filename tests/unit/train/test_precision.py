"""Half precision: the scale of the loss in float16, whose logic is that of torch on any device."""

from __future__ import annotations

import copy

import pytest
import torch

from shared.errors import RequestError
from train.batch import Batch
from train.distributed import ALONE
from train.losses import Loss, MilNceConfig
from train.model import ModelConfig, TokenSpec, WordsConfig, build_model
from train.negatives import QueueConfig, build_negatives
from train.optim import OptimConfig, build_optimizer
from train.precision import check_precision, make_scaler
from train.step import NonFiniteStep, TrainStep


def make_step(*, precision: str = "float32", scaled: bool = True, micro_batches: int = 1) -> TrainStep:
    torch.manual_seed(1)
    config = ModelConfig(dim=8, text=WordsConfig(word_dim=6, hidden=16))
    model = build_model(config, input_dim=5, tokens=TokenSpec(vocab_size=30, pad_id=0, max_tokens=4))
    return TrainStep(
        model,
        build_optimizer(model, OptimConfig(lr=0.01)),
        Loss(MilNceConfig()),
        ALONE,
        factor=lambda index: 1 / (index + 1),
        clip=1.0,
        total_steps=10,
        negatives=build_negatives(QueueConfig(size=9), model, ALONE, videos=100, seed=4),
        precision=precision,
        scaler=torch.amp.GradScaler("cpu", init_scale=16.0) if scaled else None,
        micro_batches=micro_batches,
    )


def make_batch(number: int) -> Batch:
    draw = torch.Generator().manual_seed(number)
    return Batch(
        torch.randn(6, 3, 5, generator=draw),
        torch.ones(6, 3, dtype=torch.bool),
        torch.randint(1, 30, (6, 2, 4), generator=draw),
        torch.ones(6, 2, 4, dtype=torch.bool),
        torch.ones(6, 2, dtype=torch.bool),
        torch.arange(6) + 10 * number,
    )


def overflows_at(step: TrainStep, limit: float) -> None:
    """As float16 does: a gradient of a larger scale is infinite."""
    weight = step.model.video.projection.weight
    weight.register_hook(lambda gradient: gradient * (torch.inf if step._scaler.get_scale() > limit else 1.0))


def content(step: TrainStep) -> object:
    return copy.deepcopy((step.model.state_dict(), step.optimizer.state_dict(), step._negatives.state_dict()))


def assert_same(ours: object, theirs: object) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_a_power_of_two_as_the_scale_changes_no_bit(micro_batches):
    scaled = make_step(micro_batches=micro_batches)
    plain = make_step(scaled=False, micro_batches=micro_batches)
    for index in range(3):
        ours, theirs = scaled(make_batch(index), index), plain(make_batch(index), index)
        assert (ours.scale, theirs.scale) == (16.0, 1.0)
        assert (ours.loss, ours.grad_norm, ours.skipped) == (theirs.loss, theirs.grad_norm, False)
    assert_same(content(scaled), content(plain))


def test_a_gradient_that_overflows_skips_its_step_and_lowers_the_scale():
    step = make_step()
    overflows_at(step, 4.0)
    step.optimizer.step()
    before = content(step)
    skipped = [step(make_batch(0), 0) for _ in range(2)]
    assert [(result.scale, result.skipped) for result in skipped] == [(16.0, True), (8.0, True)]
    after = content(step)
    assert_same(after[0], before[0])
    assert_same(after[2], before[2])
    assert after[1]["state"] == before[1]["state"] == {}
    taken = step(make_batch(0), 2)
    assert (taken.scale, taken.skipped) == (4.0, False)
    assert taken.learning_rate == pytest.approx(0.01 / 3), "the schedule counts steps, skipped or not"
    assert step.model.video.projection.weight.ne(before[0]["video.projection.weight"]).any()


def test_what_overflows_at_no_scale_ends_the_run():
    step = make_step()
    overflows_at(step, 0.0)
    results = [step(make_batch(0), 0) for _ in range(4)]
    assert all(result.skipped for result in results)
    with pytest.raises(NonFiniteStep, match="gradient norm is inf"):
        step(make_batch(0), 0)


def test_gradients_whose_norm_alone_overflows_end_the_run():
    step = make_step()
    step.model.video.projection.weight.register_hook(lambda gradient: torch.full_like(gradient, 1e30))
    with pytest.raises(NonFiniteStep, match="gradient norm is inf"):
        step(make_batch(0), 0)


def test_a_loss_that_is_not_finite_is_no_matter_of_the_scale():
    step, batch = make_step(), make_batch(0)
    batch.video_BTD[2, 0, 0] = torch.nan
    with pytest.raises(NonFiniteStep, match="the loss is nan"):
        step(batch, 0)


def test_a_run_that_goes_on_has_the_scale_and_counts_on():
    step, other = make_step(), make_step()
    overflows_at(step, 8.0)
    for index in range(3):
        step(make_batch(index), index)
    other.load_state_dict(step.state_dict())
    assert other.state_dict() == step.state_dict()
    assert other.state_dict()["scaler"]["scale"] == 8.0
    assert other.state_dict()["scaler"]["_growth_tracker"] == 2


def test_the_towers_compute_in_half_precision_and_the_loss_does_not():
    for precision, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16), ("float32", torch.float32)):
        step = make_step(precision=precision)
        seen = []
        step.model.video.projection.register_forward_hook(lambda *arguments, seen=seen: seen.append(arguments[2].dtype))
        assert step(make_batch(0), 0).loss == pytest.approx(make_step()(make_batch(0), 0).loss, rel=0.02)
        assert seen == [dtype]


def test_float16_needs_a_gpu_and_says_what_else_there_is():
    with pytest.raises(RequestError, match=r"precision=float16 on device cpu: .*bfloat16"):
        check_precision("float16", torch.device("cpu"))
    check_precision("float16", torch.device("cuda"))
    check_precision("bfloat16", torch.device("cpu"))
    assert not make_scaler("bfloat16", torch.device("cpu")).is_enabled()
    assert make_scaler("float16", torch.device("cpu")).is_enabled()
