from __future__ import annotations

import pytest

from train.early_stop import EarlyStop, StopConfig


def ends_after(values: list[float], patience: int, min_delta: float = 0.0, higher: bool = True) -> int | None:
    stop = EarlyStop(StopConfig(patience=patience, min_delta=min_delta), higher)
    for number, value in enumerate(values, start=1):
        stop.count(value)
        if stop.exhausted:
            return number
    return None


@pytest.mark.parametrize(
    ("values", "patience", "min_delta", "higher", "expected"),
    [
        ([0.1, 0.2, 0.3, 0.4], 1, 0.0, True, None),
        ([0.1, 0.2, 0.2], 1, 0.0, True, 3),
        ([0.1, 0.2, 0.2, 0.15, 0.3, 0.1], 3, 0.0, True, None),
        ([9.0, 8.0, 9.0, 9.0], 2, 0.0, False, 4),
        ([9.0, 8.0, 7.0], 2, 0.0, True, 3),
        # Steps of 0.04 are too small each, the third has passed the first value by more than 0.1.
        ([0.1, 0.14, 0.18, 0.22], 3, 0.1, True, None),
        ([0.1, 0.14, 0.18, 0.19], 3, 0.1, True, 4),
    ],
)
def test_ends_after_so_many_validations_without_an_improvement(values, patience, min_delta, higher, expected):
    assert ends_after(values, patience, min_delta, higher) == expected


def test_goes_on_from_its_state_as_if_it_had_never_stopped():
    values = [0.1, 0.3, 0.2, 0.25, 0.3, 0.28]
    for cut in range(len(values)):
        stop = EarlyStop(StopConfig(patience=4), higher=True)
        for value in values[:cut]:
            stop.count(value)
        again = EarlyStop(StopConfig(patience=4), higher=True)
        again.load_state_dict(stop.state_dict())
        for value in values[cut:]:
            again.count(value)
        assert (again.exhausted, again.waited) == (True, 4)


def test_without_a_config_it_never_ends_a_run():
    stop = EarlyStop(None, higher=True)
    for _ in range(50):
        stop.count(0.5)
    assert not stop.exhausted
    assert stop.waited == 49
