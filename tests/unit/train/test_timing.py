from __future__ import annotations

import time

import pytest
import torch

from train.timing import COMMUNICATION, GradientWait, Meter, Stopwatch


@pytest.fixture
def clock(monkeypatch):
    """A clock that only its owner moves."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_a_stopwatch_adds_up_also_what_fails(clock):
    def fail_after(seconds):
        clock[0] += seconds
        raise ZeroDivisionError

    watch = Stopwatch()
    for seconds in (1.0, 2.0):
        with watch.running():
            clock[0] += seconds
        clock[0] += 10
    with pytest.raises(ZeroDivisionError), watch.running():
        fail_after(4)
    assert watch.total_s == 7.0


def test_an_interval_is_what_happened_since_the_last_one(clock):
    meter = Meter()
    clock[0] += 5
    meter.restart()
    meter.count(8, 0.5)
    meter.count(8, 0.25)
    with COMMUNICATION.running():
        clock[0] += 1
    clock[0] += 1
    assert meter.read() == (2.0, 0.75, 1.0, 16)
    clock[0] += 3
    assert meter.read() == (3.0, 0.0, 0.0, 0)


def test_what_a_backward_takes_after_its_last_gradient_is_communication(clock):
    weights = torch.nn.Linear(2, 1)
    waits, before = GradientWait(weights.parameters()), COMMUNICATION.total_s
    with waits.around_backward():
        clock[0] += 5
        weights(torch.ones(1, 2)).sum().backward()
        clock[0] += 2
    assert COMMUNICATION.total_s - before == 2.0
    with GradientWait(()).around_backward():
        clock[0] += 2
    assert COMMUNICATION.total_s - before == 2.0
