"""Fixed and learned temperatures."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from train.model.temperature import Temperature, TemperatureConfig


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
