from __future__ import annotations

import signal

import pytest

from shared.interrupts import held_interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_strikes_after_the_block(number):
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
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
    finally:
        signal.signal(signal.SIGTERM, before)


def test_without_a_signal_nothing_happens_and_other_errors_pass():
    with held_interrupts():
        pass
    with pytest.raises(ZeroDivisionError), held_interrupts():
        _ = 1 / 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
