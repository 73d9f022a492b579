"""How steps count through epochs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from threading import Lock


class EqualEpochs:
    """Epochs of one length, in steps (at least 1)."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def place(self, step: int) -> tuple[int, int]:
        """The epoch that `step` is in, and its number within it."""
        return divmod(step, self._steps)

    def steps_before(self, epoch: int) -> int:
        """Steps of all epochs before `epoch`."""
        return epoch * self._steps


class CountedEpochs:
    """Epochs whose lengths have to be counted one by one; each is counted once and remembered.

    count: the steps of an epoch, where the first has at least one. An epoch without a step is passed over.
    """

    def __init__(self, count: Callable[[int], int]) -> None:
        self._count = count
        self._before = [0]
        # Batches are made ahead by other threads than the one that asks where an epoch ends.
        self._lock = Lock()

    def place(self, step: int) -> tuple[int, int]:
        """The epoch that `step` is in, and its number within it."""
        with self._lock:
            while self._before[-1] <= step:
                self._extend()
            epoch = bisect_right(self._before, step) - 1
            return epoch, step - self._before[epoch]

    def steps_before(self, epoch: int) -> int:
        """Steps of all epochs before `epoch`."""
        with self._lock:
            while len(self._before) <= epoch:
                self._extend()
            return self._before[epoch]

    def _extend(self) -> None:
        self._before.append(self._before[-1] + self._count(len(self._before) - 1))
