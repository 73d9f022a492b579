"""One step in one process. Several ranks: tests/integration/test_step_equality.py."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch

import train.step
from train.batch import Batch
from train.distributed import ALONE
from train.losses import Loss, MilNceConfig
from train.model import Embeddings, ModelConfig, TokenSpec, WordsConfig, build_model
from train.model.temperature import TemperatureConfig
from train.optim import OptimConfig, build_optimizer
from train.precision import Precision
from train.step import NonFiniteStep, TrainStep


def make_step(lr: float = 0.01, clip: float | None = 1.0, precision: Precision = "float32", **temperature) -> TrainStep:
    torch.manual_seed(1)
    config = ModelConfig(
        dim=8,
        text=WordsConfig(word_dim=6, hidden=16),
        temperature=TemperatureConfig(**{"value": 0.1, "learned": True, **temperature}),
    )
    model = build_model(config, input_dim=5, tokens=TokenSpec(vocab_size=30, pad_id=0, max_tokens=4))
    optimizer = build_optimizer(model, OptimConfig(lr=lr))
    return TrainStep(
        model,
        optimizer,
        Loss(MilNceConfig()),
        ALONE,
        factor=lambda index: 1.0 if index else 0.5,
        clip=clip,
        total_steps=100,
        precision=precision,
    )


@pytest.fixture
def batch():
    draw = torch.Generator().manual_seed(2)
    return Batch(
        torch.randn(6, 3, 5, generator=draw),
        torch.ones(6, 3, dtype=torch.bool),
        torch.randint(1, 30, (6, 2, 4), generator=draw),
        torch.ones(6, 2, 4, dtype=torch.bool),
        torch.tensor([[True, True]] * 4 + [[True, False], [False, False]]),
        torch.arange(6) + 40,
    )


def test_repeated_steps_learn_the_batch(batch):
    step = make_step()
    results = [step(batch, index) for index in range(60)]
    assert results[-1].loss < 0.1 < 1 < results[0].loss
    assert results[-1].accuracy == 1.0
    assert results[0].learning_rate == pytest.approx(0.005)
    assert results[1].learning_rate == pytest.approx(0.01)
    assert results[0].clips == 6
    assert results[0].temperature == pytest.approx(0.1)


def test_a_step_is_a_function_of_weights_and_batch(batch):
    first, second = make_step(), make_step()
    for index in range(3):
        assert first(batch, index) == second(batch, index)
    for ours, theirs in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_half_precision_features_are_accepted(batch):
    assert math.isfinite(make_step()(replace(batch, video_BTD=batch.video_BTD.half()), 0).loss)


def test_empty_slots_and_padded_rows_change_nothing(batch):
    tokens, video, mask = batch.tokens_BKL.clone(), batch.video_BTD.clone(), batch.video_mask_BT.clone()
    mask[:, 2] = False
    tokens[5], video[:, 2] = 7, math.nan
    clean = replace(batch, video_BTD=torch.where(mask[..., None], video, 0.0), video_mask_BT=mask)
    dirty = replace(clean, video_BTD=video, tokens_BKL=tokens)
    first, second = make_step(), make_step()
    assert first(clean, 0) == second(dirty, 0)
    for ours, theirs in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_learned_temperature_stays_within_its_bounds(batch):
    step = make_step(lr=0.5, clip=None, minimum=0.09, maximum=0.11)
    for index in range(10):
        step(batch, index)
        assert 0.09 - 1e-6 <= step.model.temperature().item() <= 0.11 + 1e-6


def test_a_fixed_temperature_stays_and_is_no_parameter(batch):
    step = make_step(learned=False)
    assert step(batch, 0).temperature == step(batch, 1).temperature == pytest.approx(0.1)
    assert "temperature.log_value" not in dict(step.model.named_parameters())


def test_a_batch_without_any_caption_has_loss_zero_and_no_gradient(batch):
    step = make_step()
    names = ("tokens_BKL", "token_mask_BKL", "caption_mask_BK")
    none = replace(batch, **{name: getattr(batch, name)[:, :0] for name in names})
    result = step(none, 0)
    assert (result.loss, result.grad_norm, result.accuracy) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_non_finite_clip_stops_before_any_weight_changes_and_names_its_video(batch, value):
    step = make_step()
    before = copy.deepcopy(step.model.state_dict())
    video = batch.video_BTD.clone()
    video[2, 1, 0] = value
    with pytest.raises(NonFiniteStep, match="videos 42") as caught:
        step(replace(batch, video_BTD=video), 0)
    assert caught.value.video_ids == [42]
    assert caught.value.exit_code == 5
    for name, tensor in step.model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_a_non_finite_gradient_names_the_whole_batch(batch):
    step = make_step()
    step.model.video.projection.weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(NonFiniteStep, match="gradient norm") as caught:
        step(batch, 0)
    assert caught.value.video_ids == list(range(40, 46))


def test_a_scheduled_temperature_is_that_of_the_step(batch):
    step = make_step(learned=False, value=1.0, schedule="linear", final=0.1)
    assert step(batch, 75).temperature == pytest.approx(0.1 + 0.9 * 0.25)
    assert step(batch, 50).temperature == pytest.approx(0.1 + 0.9 * 0.5)


def test_under_autocast_the_gradient_of_the_loss_stays_in_float32(batch):
    """With texts that are a constant table, the gradient of the video is a float32 product of the loss alone."""
    steps = make_step(), make_step()
    seen = []
    for step, half in zip(steps, (False, True), strict=True):
        step._towers._forward = FixedEmbeddings()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            step(batch, 0)
        seen.append(step._towers._forward.video_BD.grad)
    assert torch.equal(*seen)


class FixedEmbeddings(torch.nn.Module):
    """Stands for both towers."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(8)
        self.video_BD = torch.nn.Parameter(torch.randn(6, 8, generator=draw))
        self.text_BKD = torch.randn(6, 2, 8, generator=draw)

    def forward(self, video_BTD, video_mask_BT, tokens_BKL, token_mask_BKL, caption_mask_BK, caption_BKE) -> Embeddings:
        return Embeddings(self.video_BD, self.text_BKD, caption_mask_BK, torch.tensor(0.1), None)


def test_ranks_add_up_gradients_of_texts_in_full_precision(batch, monkeypatch):
    """In bfloat16 each addition of another rank's gradients would round."""
    gathered = []
    monkeypatch.setattr(train.step, "gather_rows", lambda x, world: gathered.append(x.dtype) or x)
    make_step(precision="bfloat16")(batch, 0)
    assert gathered == [torch.float32]


class Detached(torch.nn.Module):
    """A tower of somebody's own, with a mistake."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *inputs):
        return self.inner(*inputs).detach()


def test_what_learns_nothing_is_told_once(batch, capsys):
    step = make_step()
    step.model.video = Detached(step.model.video)
    for index in range(2):
        step(batch, index)
    said = capsys.readouterr().out
    assert said.count("warning: no embedding depends on 2 parameters that should learn, video.inner.") == 1
    make_step()(batch, 0)
    assert capsys.readouterr().out == ""


def test_without_texts_of_other_videos_nothing_is_won(batch):
    result = make_step()(replace(batch, video_ids_B=torch.zeros(6, dtype=torch.int64)), 0)
    assert (result.loss, result.grad_norm, result.accuracy) == (0.0, 0.0, 0.0)
