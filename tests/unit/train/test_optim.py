"""Which parameters learn, in which groups, and how far."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from shared.errors import RequestError
from train.optim import GroupConfig, OptimConfig, build_optimizer, clip_gradients, set_learning_rate


@pytest.fixture
def model():
    model = nn.Module()
    model.text = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    model.video = nn.Linear(5, 3)
    model.temperature = nn.Parameter(torch.tensor(0.5))
    return model


def names_by(optimizer, model, key):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(p)]: group[key] for group in optimizer.param_groups for p in group["params"]}


@pytest.mark.parametrize(("name", "kind"), [("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)])
def test_biases_norms_and_temperature_do_not_decay(model, name, kind):
    optimizer = build_optimizer(model, OptimConfig(name=name, weight_decay=0.3))
    assert isinstance(optimizer, kind)
    decays = names_by(optimizer, model, "weight_decay")
    assert len(decays) == len(list(model.parameters()))
    assert {name for name, decay in decays.items() if decay} == {"text.0.weight", "video.weight"}


def test_groups_learn_at_their_own_rate_and_follow_the_schedule(model):
    config = OptimConfig(lr=0.1, groups=(GroupConfig(pattern="text.*", scale=0.5), GroupConfig(pattern="*", scale=2)))
    optimizer = build_optimizer(model, config)
    set_learning_rate(optimizer, 0.25)
    rates = names_by(optimizer, model, "lr")
    assert rates["text.0.weight"] == rates["text.1.bias"] == pytest.approx(0.0125)
    assert rates["video.weight"] == rates["temperature"] == pytest.approx(0.05)
    set_learning_rate(optimizer, 1.0)
    assert names_by(optimizer, model, "lr")["video.weight"] == pytest.approx(0.2)


def test_only_what_learns_is_optimised(model):
    optimizer = build_optimizer(model, OptimConfig(freeze=("text.*", "temperature")))
    assert set(names_by(optimizer, model, "lr")) == {"video.weight", "video.bias"}
    assert not model.text[0].weight.requires_grad


@pytest.mark.parametrize(
    "config", [OptimConfig(freeze=("txet.*",)), OptimConfig(groups=(GroupConfig(pattern="txet.*", scale=1),))]
)
def test_a_pattern_without_a_match_is_refused(model, config):
    with pytest.raises(RequestError, match=r"'txet\.\*' matches no parameter.*video"):
        build_optimizer(model, config)


@pytest.mark.parametrize("first", [("text.*",), ("text.1.*",), ("text.1.bias", "text.1.w*")])
def test_a_group_that_no_parameter_follows_is_refused(model, first):
    groups = tuple(GroupConfig(pattern=pattern, scale=0.5) for pattern in (*first, "text.1.*"))
    with pytest.raises(
        RequestError, match=r"'text\.1\.\*' is left with no parameter: all 2 .* follow 'text\."
    ) as found:
        build_optimizer(model, OptimConfig(groups=groups))
    assert repr(first[-1]) in str(found.value)
    build_optimizer(model, OptimConfig(groups=groups[:-1]))


def test_freezing_everything_is_refused(model):
    with pytest.raises(RequestError, match="nothing would learn"):
        build_optimizer(model, OptimConfig(freeze=("*",)))


@pytest.mark.parametrize("limit", [None, 1.0, 100.0])
def test_clipping_returns_the_norm_before_and_scales_to_the_limit(model, limit):
    model.video.weight.grad = torch.full((3, 5), 2.0)
    model.temperature.grad = torch.tensor(2.0)
    norm = clip_gradients(model.parameters(), limit)
    assert norm.item() == pytest.approx(8.0)
    expected = 2.0 if limit != 1.0 else 0.25
    torch.testing.assert_close(model.video.weight.grad, torch.full((3, 5), expected), rtol=1e-5, atol=0)
    assert model.temperature.grad.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("scale", "batch", "peak"), [("linear", 1024, 0.4), ("sqrt", 1024, 0.2), ("linear", 64, 0.025)]
)
def test_the_rate_follows_the_batch_in_every_group(model, scale, batch, peak):
    config = OptimConfig(lr=0.1, scale=scale, base_batch=256, groups=(GroupConfig(pattern="text.*", scale=0.5),))
    optimizer = build_optimizer(model, config, batch)
    rates = names_by(optimizer, model, "peak_lr")
    assert rates["video.weight"] == optimizer.defaults["lr"] == pytest.approx(peak)
    assert rates["text.0.weight"] == pytest.approx(peak / 2)
    set_learning_rate(optimizer, 0.5)
    assert names_by(optimizer, model, "lr")["video.weight"] == pytest.approx(peak / 2)


def test_without_scaling_the_batch_does_not_matter(model):
    assert names_by(build_optimizer(model, OptimConfig(lr=0.1), 9999), model, "peak_lr")["video.weight"] == 0.1


@pytest.mark.parametrize("options", [{"scale": "linear"}, {"base_batch": 256}])
def test_scaling_needs_both_keys(options):
    with pytest.raises(ValidationError, match="give both or neither"):
        OptimConfig(**options)


@pytest.mark.parametrize(
    ("scale", "batch", "warned"), [("linear", 1024, False), ("linear", 1025, True), ("sqrt", 4096, False)]
)
def test_the_rate_is_told_with_its_rule_and_a_warning_for_large_linear_batches(scale, batch, warned):
    config = OptimConfig(lr=0.1, scale=scale, base_batch=256)
    text = config.described(batch)
    assert text.startswith(f"{config.peak(batch):g} (lr 0.1 for 256, {scale} in the batch)")
    assert ("warning" in text) is warned
    assert OptimConfig(lr=0.1).described(batch) == "0.1"
