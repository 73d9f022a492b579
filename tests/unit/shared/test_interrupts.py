from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from shared.interrupts import held_interrupts


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of a command; what starts the tests may have left signals ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_strikes_after_the_block(number):
    reached = []

    def block() -> None:
        with held_interrupts():
            signal.raise_signal(number)
            signal.raise_signal(number)
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert reached == ["the end"]
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler


def test_without_a_signal_nothing_happens_and_other_errors_pass():
    with held_interrupts():
        pass
    with pytest.raises(ZeroDivisionError), held_interrupts():
        _ = 1 / 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_is_ignored_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held_interrupts():
        signal.raise_signal(signal.SIGINT)
