"""Ctrl-C and SIGTERM at moments where they must not strike."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_interrupts() -> Iterator[None]:
    """SIGINT and SIGTERM wait until the block has ended: for imports of libraries in C++, which a KeyboardInterrupt in
    the middle aborts (`terminate called after throwing`). In the main thread only."""
    received: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])
