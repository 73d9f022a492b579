"""Running out of memory in one process, anywhere in a step. Several ranks: integration/test_step_equality."""

from __future__ import annotations

import copy

import pytest
import torch

from shared.errors import RunFailed
from train.batch import Batch
from train.distributed import ALONE
from train.losses import Loss, MilNceConfig
from train.model import ModelConfig, TokenSpec, VideoHeadConfig, WordsConfig, build_model
from train.model.temperature import TemperatureConfig
from train.negatives import QueueConfig, build_negatives
from train.optim import OptimConfig, build_optimizer
from train.out_of_memory import Rehearsal
from train.step import TrainStep
from train.towers import Inputs, Towers

CLIPS = 8


def make_step(said: list[str] | None = None, micro_batches: int = 1) -> TrainStep:
    torch.manual_seed(1)
    config = ModelConfig(
        dim=8,
        video=VideoHeadConfig(dropout=0.5),
        text=WordsConfig(word_dim=6, hidden=16),
        temperature=TemperatureConfig(value=0.1, learned=True),
    )
    model = build_model(config, input_dim=5, tokens=TokenSpec(vocab_size=30, pad_id=0, max_tokens=4))
    return TrainStep(
        model,
        build_optimizer(model, OptimConfig(lr=0.01)),
        Loss(MilNceConfig()),
        ALONE,
        factor=lambda _: 1.0,
        clip=1.0,
        total_steps=10,
        negatives=build_negatives(QueueConfig(size=9), model, ALONE, videos=100, seed=4),
        micro_batches=micro_batches,
        say=[].append if said is None else said.append,
    )


def make_batch(number: int) -> Batch:
    draw = torch.Generator().manual_seed(number)
    return Batch(
        torch.randn(CLIPS, 3, 5, generator=draw),
        torch.ones(CLIPS, 3, dtype=torch.bool),
        torch.randint(1, 30, (CLIPS, 2, 4), generator=draw),
        torch.ones(CLIPS, 2, 4, dtype=torch.bool),
        torch.ones(CLIPS, 2, dtype=torch.bool),
        torch.arange(CLIPS) + 10 * number,
    )


def trained(step: TrainStep, steps: int = 3) -> list[object]:
    torch.manual_seed(9)
    results = [step(make_batch(index), index) for index in range(steps)]
    state = copy.deepcopy((step.model.state_dict(), step.optimizer.state_dict(), step._negatives.state_dict()))
    return [results, state, torch.get_rng_state()]


def raise_where(module: torch.nn.Module, times: list[bool]) -> None:
    """Each forward takes one entry, True for out of memory; none is left at the end."""

    def hook(*_: object) -> None:
        if times and times.pop(0):
            raise torch.OutOfMemoryError("injected")

    module.register_forward_hook(hook)


def assert_same(ours: object, theirs: object) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def limited_to(step: TrainStep, clips: int) -> TrainStep:
    def hook(_module: object, _inputs: object, output: torch.Tensor) -> None:
        if output.requires_grad and len(output) > clips:
            raise torch.OutOfMemoryError("injected")

    step.model.video.register_forward_hook(hook)
    return step


def test_a_step_that_does_not_fit_is_that_of_the_size_that_does(capsys):
    said: list[str] = []
    step = limited_to(make_step(said), 2)
    ours, theirs = trained(step), trained(make_step(micro_batches=4))
    assert ours[0] == theirs[0]
    assert_same(ours[1:], theirs[1:])
    assert step.state_dict()["micro_batches"] == 4
    assert [line.partition("micro_batches=")[2].partition(",")[0] for line in said] == ["2", "4"]
    assert capsys.readouterr().err.count("rank 0: injected") == 2


@pytest.mark.parametrize("passes", [[True], [False] * 3 + [True], [False] * 5 + [True]])
def test_wherever_a_step_fails_it_begins_again_from_where_it_began(passes):
    """In the first step's first pass, in the second pass, in a second pass after some gradients are there."""
    step = make_step(micro_batches=1 if len(passes) == 1 else 4)
    raise_where(step.model.text, passes)
    ours, theirs = trained(step), trained(make_step(micro_batches=2 if step.micro_batches.number == 2 else 8))
    assert ours[0] == theirs[0]
    assert_same(ours[1:], theirs[1:])


def test_the_number_is_kept_and_a_larger_one_of_the_config_counts():
    for own, saved, number in ((1, 4, 4), (8, 4, 8)):
        step = make_step(micro_batches=own)
        step.load_state_dict({"micro_batches": saved, "scaler": {}})
        assert step.micro_batches.number == number


def test_one_clip_that_does_not_fit_ends_the_run_with_what_to_lower():
    step = limited_to(make_step(), 0)
    with pytest.raises(RunFailed, match=r"8 clips a rank in 8 part\(s\), which is one clip at a time; lower"):
        trained(step)


def test_a_batch_norm_that_learns_cannot_be_cut():
    step = make_step()
    step.model.video.norm = torch.nn.BatchNorm1d(3)
    limited_to(step, 4)
    with pytest.raises(RunFailed, match=r"batch norm video.norm .* freeze it \(optim.freeze=\[video.norm"):
        trained(step)


def test_an_update_that_does_not_fit_is_not_done_again(monkeypatch):
    step = make_step()

    def run_out(*_: object) -> None:
        raise torch.OutOfMemoryError("injected")

    monkeypatch.setattr(step.optimizer, "step", run_out)
    with pytest.raises(RunFailed, match=r"in the optimizer's update, .* again with micro_batches=2: it goes on from"):
        trained(step)


def test_nothing_else_is_caught():
    step = make_step()
    step.model.text.register_forward_hook(lambda *_: (_ for _ in ()).throw(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        trained(step)


def test_a_rehearsal_leaves_nothing_behind_and_is_held_once_a_shape():
    step = make_step()
    step.model.video.norm = torch.nn.BatchNorm1d(3)
    step.model.train()
    before, state = copy.deepcopy(step.model.state_dict()), torch.get_rng_state()
    rows: list[int] = []
    step.model.video.register_forward_hook(lambda *seen: rows.append(len(seen[2])))
    rehearsal = Rehearsal(Towers(step.model, ALONE, "float32"), ALONE)
    batch = make_batch(0)
    inputs = Inputs(batch.video_BTD, batch.video_mask_BT, batch.tokens_BKL, batch.token_mask_BKL, batch.caption_mask_BK)
    for size in (4, 4, 2, 6, 5):
        rehearsal.until_it_fits(inputs.rows(slice(0, size)), step.micro_batches)
    assert rows == [4, 6]
    assert_same(step.model.state_dict(), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in step.model.parameters())
    assert step.model.video.norm.training
