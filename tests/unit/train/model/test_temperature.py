"""Fixed, scheduled and learned temperatures."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError

from train.model.temperature import Temperature, TemperatureConfig, scheduled_temperature


def test_fixed_has_no_parameter_and_clamping_leaves_it_alone():
    temperature = Temperature(TemperatureConfig(value=5.0))
    assert not list(temperature.parameters())
    temperature.clamp_()
    assert temperature().item() == pytest.approx(5.0)


def test_learned_moves_in_log_space_and_comes_back_within_bounds():
    temperature = Temperature(TemperatureConfig(value=0.5, learned=True, minimum=0.1, maximum=0.9))
    [gradient] = torch.autograd.grad(temperature(), list(temperature.parameters()))
    assert gradient.item() == pytest.approx(0.5)
    for outside, bound in ((3.0, 0.9), (-9.0, 0.1)):
        temperature.log_value.data.fill_(outside)
        temperature.clamp_()
        assert temperature().item() == pytest.approx(bound)
        # At the bound the gradient still points somewhere: it can leave again.
        assert torch.autograd.grad(temperature(), list(temperature.parameters()))[0] != 0


def test_a_start_outside_the_bounds_is_refused():
    with pytest.raises(ValidationError, match=r"value=2\.0, expected within"):
        TemperatureConfig(value=2.0, learned=True)


def test_a_linear_schedule_is_the_rule_of_a_tenth_and_nine_tenths():
    config = TemperatureConfig(value=1.0, schedule="linear", final=0.1)
    for progress in (0.0, 0.25, 0.9, 1.0):
        assert scheduled_temperature(config, progress) == pytest.approx(0.1 + 0.9 * (1 - progress))


def test_a_cosine_schedule_goes_from_value_to_final_by_way_of_their_middle():
    config = TemperatureConfig(value=0.2, schedule="cosine", final=0.05)
    ends_and_middle = [scheduled_temperature(config, progress) for progress in (0.0, 0.5, 1.0)]
    assert ends_and_middle == pytest.approx([0.2, 0.125, 0.05])
    assert scheduled_temperature(config, 0.25) == pytest.approx(0.05 + 0.15 * 0.5 * (1 + math.cos(math.pi / 4)))


def test_a_scheduled_temperature_follows_the_step_and_a_constant_one_stays():
    scheduled = Temperature(TemperatureConfig(value=1.0, schedule="linear", final=0.1))
    for progress in (0.8, 0.2, 0.8):
        scheduled.schedule_(progress)
        assert scheduled().item() == pytest.approx(0.1 + 0.9 * (1 - progress))
    assert not list(scheduled.parameters())
    learned = Temperature(TemperatureConfig(value=0.3, learned=True))
    learned.schedule_(0.9)
    assert learned().item() == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schedule": "linear"}, "needs a final"),
        ({"final": 0.1}, "schedule=constant with final"),
        ({"schedule": "cosine", "final": 0.1, "learned": True}, "choose one"),
        ({"schedule": "linear", "final": 0}, "greater than 0"),
    ],
)
def test_a_schedule_that_says_nothing_or_too_much_is_refused(options, said):
    with pytest.raises(ValidationError, match=said):
        TemperatureConfig(**options)
