"""The learning rate as a function of the step."""

from __future__ import annotations

import pytest

from train.schedule import ScheduleConfig, learning_rate_factor


def curve(total: int, **options) -> list[float]:
    return [learning_rate_factor(step, total, ScheduleConfig(**options)) for step in range(total)]


def test_warm_up_rises_to_the_peak_then_half_a_cosine_falls():
    factors = curve(100, warmup=0.1)
    assert factors[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert factors[10] == 1.0
    assert factors[55] == pytest.approx(0.5)
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert 0 < factors[-1] < 0.001


def test_final_share_and_constant():
    assert curve(1000, warmup=0.0, final=0.2)[-1] == pytest.approx(0.2, abs=1e-5)
    assert set(curve(10, name="constant", warmup=0.0)) == {1.0}


@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("total", [1, 2, 3])
def test_the_shortest_runs_have_positive_rates(total, warmup):
    assert all(0 < factor <= 1 for factor in curve(total, warmup=warmup))


@pytest.mark.parametrize("step", [-1, 10])
def test_a_step_outside_the_run_is_a_bug(step):
    with pytest.raises(ValueError, match="outside a run of 10"):
        learning_rate_factor(step, 10, ScheduleConfig())
