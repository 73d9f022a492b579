"""The key towers: they follow, learn nothing, and share what is frozen."""

from __future__ import annotations

import copy

import pytest
import torch

from train.model import ModelConfig, TokenSpec, VideoHeadConfig, WordsConfig, build_model
from train.negatives.keys import KeyTowers
from train.optim import freeze_parameters

INPUTS = (
    torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(1)),
    torch.ones(3, 2, dtype=torch.bool),
    torch.arange(1, 25).view(3, 2, 4),
    torch.ones(3, 2, 4, dtype=torch.bool),
    torch.ones(3, 2, dtype=torch.bool),
)


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = ModelConfig(dim=4, video=VideoHeadConfig(dropout=0.5), text=WordsConfig(word_dim=3, hidden=6))
    model = build_model(config, input_dim=5, tokens=TokenSpec(30, 0, 4))
    freeze_parameters(model, ["text.words.*"])
    model.video.register_buffer("running", torch.zeros(2))
    return model.train()


def moved(model):
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 1.0
        model.video.running += 3
    return model


def test_keys_follow_by_their_momentum_and_buffers_are_copied(model):
    keys, before = KeyTowers(model, 0.75), copy.deepcopy(dict(model.named_parameters()))
    keys.follow(moved(model))
    state = keys.state_dict()
    assert "text.words.weight" not in state
    for name, value in state.items():
        torch.testing.assert_close(value, before[name] + 0.25)
    assert keys._towers.video.running.tolist() == [3, 3]


def test_what_is_equal_stays_equal_to_the_bit(model):
    keys = KeyTowers(model, 0.9)
    keys.follow(model)
    assert all(torch.equal(value, model.get_parameter(name)) for name, value in keys.state_dict().items())


def test_keys_have_neither_gradient_nor_dropout_and_leave_the_model_training(model):
    keys = KeyTowers(model, 0.9)
    first, second = keys(*INPUTS), keys(*INPUTS)
    assert torch.equal(first.video_BD, second.video_BD)
    assert not first.video_BD.requires_grad
    assert not first.text_BKD.requires_grad
    assert model.training
    torch.testing.assert_close(first.video_BD, model.eval()(*INPUTS).video_BD)


def test_frozen_parameters_are_shared_and_others_are_not(model):
    towers = KeyTowers(model, 0.9)._towers
    assert towers.text.words.weight is model.text.words.weight
    assert towers.text.hidden.weight is not model.text.hidden.weight
    assert model.text.hidden.weight.requires_grad
    assert not any(parameter.requires_grad for parameter in towers.parameters())


def test_saved_keys_are_the_keys(model):
    keys = KeyTowers(model, 0.9)
    keys.follow(moved(model))
    other = KeyTowers(model, 0.9)
    assert not torch.equal(other(*INPUTS).video_BD, keys(*INPUTS).video_BD)
    other.load_state_dict(copy.deepcopy(keys.state_dict()), model)
    assert torch.equal(other(*INPUTS).video_BD, keys(*INPUTS).video_BD)
    assert torch.equal(other._towers.video.running, model.video.running)
