"""Where a step's time goes: waiting for data, talking to other ranks, and the rest, which is computing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn


class Stopwatch:
    """Seconds that this process spent inside `running`, since it began.

    total_s: seconds; only ever grows.
    """

    def __init__(self) -> None:
        self.total_s = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.total_s += time.perf_counter() - begin


# Of the process, as the process group is: `train.distributed` runs it around each of its collectives.
COMMUNICATION = Stopwatch()


class GradientWait:
    """Counts as communication what a backward still takes after its last gradient was there: DDP waits for the others.

    What DDP sends while gradients are still being computed costs no time and is not seen. On a GPU only what the host
    waits for is seen, as collectives run beside it.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._last = 0.0
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._seen)  # type: ignore[no-untyped-call]

    @contextmanager
    def around_backward(self) -> Iterator[None]:
        self._last = 0.0
        yield
        if self._last > 0:
            COMMUNICATION.total_s += time.perf_counter() - self._last

    def _seen(self, parameter: torch.Tensor) -> None:
        del parameter
        self._last = time.perf_counter()


class Interval(NamedTuple):
    """What a rank did between two lines of the log: seconds, seconds, seconds, clips of the global batches."""

    elapsed_s: float
    data_s: float
    communicating_s: float
    clips: int


class Meter:
    """Measures intervals, one after another."""

    def __init__(self) -> None:
        self.restart()

    def count(self, clips: int, waited_s: float) -> None:
        self._clips += clips
        self._waited += waited_s

    def read(self) -> Interval:
        """The interval since the last `read`; starts anew."""
        elapsed = max(time.perf_counter() - self._begin, 1e-9)
        interval = Interval(elapsed, self._waited, COMMUNICATION.total_s - self._communicated, self._clips)
        self.restart()
        return interval

    def restart(self) -> None:
        """Leave out what happened since the last `read`, as a validation."""
        self._begin, self._waited, self._clips = time.perf_counter(), 0.0, 0
        self._communicated = COMMUNICATION.total_s
