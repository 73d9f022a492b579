"""What a config may ask for, and steps with what is remembered. Several ranks: integration/test_step_equality.py."""

from __future__ import annotations

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from shared.errors import RequestError
from train.batch import Batch
from train.distributed import ALONE
from train.losses import Loss, MilNceConfig
from train.model import ModelConfig, TokenSpec, WordsConfig, build_model
from train.negatives import MEMORIES, BankConfig, MocoConfig, NegativesConfig, QueueConfig, build_negatives
from train.optim import OptimConfig, build_optimizer
from train.step import TrainStep

CONFIGS = {"queue": QueueConfig(size=9), "moco": MocoConfig(size=9, momentum=0.6), "bank": BankConfig(size=100)}


def make_step(config, steps: int = 100) -> TrainStep:
    torch.manual_seed(1)
    sizes = ModelConfig(dim=8, text=WordsConfig(word_dim=6, hidden=16))
    model = build_model(sizes, input_dim=5, tokens=TokenSpec(vocab_size=30, pad_id=0, max_tokens=4))
    optimizer = build_optimizer(model, OptimConfig(lr=0.01))
    negatives = build_negatives(config, model, ALONE, videos=100, seed=4)
    return TrainStep(
        model,
        optimizer,
        Loss(MilNceConfig()),
        ALONE,
        factor=lambda _: 1.0,
        clip=1.0,
        total_steps=steps,
        negatives=negatives,
    )


def make_batch(number: int) -> Batch:
    draw = torch.Generator().manual_seed(number)
    return Batch(
        torch.randn(6, 3, 5, generator=draw),
        torch.ones(6, 3, dtype=torch.bool),
        torch.randint(1, 30, (6, 2, 4), generator=draw),
        torch.ones(6, 2, 4, dtype=torch.bool),
        torch.tensor([[True, True]] * 4 + [[True, False], [False, False]]),
        torch.arange(6) + 10 * number,
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_the_first_step_is_that_of_the_batch_alone_and_later_ones_are_harder(name):
    """At the start keys are queries and nothing is remembered."""
    ours, plain = make_step(CONFIGS[name]), make_step(None)
    losses = [(ours(make_batch(n), n).loss, plain(make_batch(n), n).loss) for n in range(3)]
    assert losses[0][0] == pytest.approx(losses[0][1], rel=1e-6)
    assert losses[1][0] > losses[1][1] + 0.1


def test_a_queue_remembers_what_the_model_said_before_the_step():
    step, batch = make_step(CONFIGS["queue"]), make_batch(1)
    with torch.no_grad():
        said = step.model.embed_video(batch.video_BTD, batch.video_mask_BT)
    step(batch, 0)
    state = step._negatives.state_dict()
    assert state["keys"] is None
    assert torch.equal(state["memory"]["videos"]["vectors"][:6], said)
    assert state["memory"]["videos"]["ids"][:6].tolist() == batch.video_ids_B.tolist()


def test_moco_remembers_keys_and_its_keys_follow_the_new_weights():
    step, batch = make_step(CONFIGS["moco"]), make_batch(1)
    before = step.model.video.projection.weight.clone()
    step(batch, 0)
    now, keys = step.model.video.projection.weight, step._negatives.state_dict()["keys"]
    torch.testing.assert_close(keys["video.projection.weight"], 0.6 * before + 0.4 * now)
    with torch.no_grad():
        own = step._negatives._keys(*step._inputs(batch)).video_BD
    step(batch, 1)
    vectors = step._negatives.state_dict()["memory"]["videos"]["vectors"]
    assert torch.equal(vectors[[6, 7, 8, 0, 1, 2]], own)


@pytest.mark.parametrize("name", CONFIGS)
def test_saved_and_loaded_it_goes_on_to_the_bit(name):
    whole = make_step(CONFIGS[name])
    expected = [whole(make_batch(n % 3), n) for n in range(5)]
    first = make_step(CONFIGS[name])
    for n in range(3):
        first(make_batch(n % 3), n)
    second = make_step(CONFIGS[name])
    second.model.load_state_dict(first.model.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second._negatives.load_state_dict(first._negatives.state_dict(), second.model)
    assert [second(make_batch(n % 3), n) for n in range(3, 5)] == expected[3:]


@pytest.mark.parametrize("name", MEMORIES)
def test_every_kind_has_a_config_of_its_name(name):
    given = {"name": name} if name == "bank" else {"name": name, "size": 5}
    config = TypeAdapter(NegativesConfig).validate_python(given)
    assert config.described(9)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"name": "queue"}, "size"),
        ({"name": "queue", "size": 0}, "size"),
        ({"name": "queue", "size": 5, "momentum": 0.9}, "momentum"),
        ({"name": "moco", "size": 5, "momentum": 1.0}, "momentum"),
        ({"name": "bank", "momentum": -0.1}, "momentum"),
        ({"name": "qeue", "size": 5}, "qeue"),
    ],
)
def test_wrong_requests_name_the_key(config, said):
    with pytest.raises(ValidationError, match=said):
        TypeAdapter(NegativesConfig).validate_python(config)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            QueueConfig(size=10**9),
            r"2 sides x 1,000,000,000 x 8 dimensions x 4 bytes = 59\.6 GiB.*lower negatives\.size",
        ),
        (MocoConfig(size=200, limit_gib=1e-6), r"limit_gib=1e-06; lower negatives\.size or raise"),
        (BankConfig(limit_gib=1e-6), r"2 sides x 100 x 8 dim.*lower model\.dim, use a queue"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(config, said):
    with pytest.raises(RequestError, match=said):
        make_step(config)


def test_a_bank_says_how_many_videos_it_draws():
    few, many = BankConfig(size=4096).described(8), BankConfig(size=40).described(1234)
    assert few == "all 8 videos and their captions, drawn from a bank of 8, as far as they were seen"
    assert many.startswith("40 videos and their captions, drawn from a bank of 1,234, ")
