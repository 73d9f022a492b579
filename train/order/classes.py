"""Length classes: how many windows a batch of each holds, and which class a window belongs to."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shared.errors import RequestError
from train.order.config import BucketsConfig


@dataclass(frozen=True)
class LengthClasses:
    """by: what is counted. bounds_C: int64, rising, the last one the longest length. sizes_C: samples of a batch."""

    by: str
    bounds_C: np.ndarray
    sizes_C: tuple[int, ...]

    def of(self, length_N: np.ndarray) -> np.ndarray:
        """uint8 (N,): the class of each length; what is longer than the last bound is read cut to it."""
        last = len(self.bounds_C) - 1
        return np.minimum(np.searchsorted(self.bounds_C, length_N), last).astype(np.uint8)

    def arrays(self, number: int) -> dict[str, int]:
        """The length of a class's arrays, as the keyword of a Selection."""
        return {self.by: int(self.bounds_C[number])}

    def worth_a_batch(self, samples_C: np.ndarray) -> LengthClasses:
        """The same without bounds that would never be trained on: classes with fewer samples an epoch than a batch.

        samples_C: how many an epoch has of each class. Such a class joins the next one, whose arrays hold its windows
        too; the last one, which has no next, takes in those before it until it has enough or is the only one.
        """
        last, waiting = len(self.sizes_C) - 1, 0.0
        kept: list[tuple[int, float]] = []
        for number, samples in enumerate(samples_C.tolist()):
            waiting += samples
            if waiting >= self.sizes_C[number] or number == last:
                kept.append((number, waiting))
                waiting = 0.0
        while len(kept) > 1 and kept[-1][1] < self.sizes_C[last]:
            kept[-2:] = [(last, kept[-2][1] + kept[-1][1])]
        numbers = [number for number, _ in kept]
        return replace(self, bounds_C=self.bounds_C[numbers], sizes_C=tuple(self.sizes_C[n] for n in numbers))


def length_classes(config: BucketsConfig, *, batch_size: int, longest: int, where: str = "") -> LengthClasses:
    """The classes of a split whose longest window counts `longest`. where: the place of the keys, for messages.

    Raises RequestError where a window fits in no class, or not even the least number of a class into a batch.
    """
    bounds_C = _bounds(config, longest, where)
    least = config.multiple
    if batch_size < least:
        raise RequestError(
            f"{where}batch_size={batch_size} is less than {where}order.buckets.multiple={least}, of which every batch "
            f"is a multiple: set {where}batch_size to at least {least}, or the multiple to at most {batch_size}"
        )
    if config.budget // longest < least:
        raise RequestError(
            f"{where}order.buckets.budget={config.budget} {config.by} holds {config.budget // longest} of the longest "
            f"windows ({longest} {config.by}), expected at least {where}order.buckets.multiple={least}: set the budget "
            f"to at least {longest * least}, or lower data.max_{config.by} or the multiple"
        )
    sizes_C = tuple(min(batch_size, config.budget // int(bound)) // least * least for bound in bounds_C)
    return LengthClasses(config.by, bounds_C, sizes_C)


def _bounds(config: BucketsConfig, longest: int, where: str) -> np.ndarray:
    """The bounds below the longest length, and that."""
    given = config.bounds or tuple(1 << power for power in range(longest.bit_length() + 1))
    if given[-1] < longest:
        raise RequestError(
            f"{where}order.buckets.bounds ends with {given[-1]}, but the longest window counts {longest} {config.by}: "
            f"add {longest} to it, or set data.max_{config.by}={given[-1]}"
        )
    return np.array([bound for bound in given if bound < longest] + [longest])
