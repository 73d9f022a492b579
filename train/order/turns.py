"""Which of several sources has its turn at a step, and how often each had one before: random access to both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import Lock
from typing import NamedTuple, Protocol

import numpy as np

from train.order.draws import TURN
from train.permutation import keyed_hash, mix_key

BLOCK = 4096


class Turns(NamedTuple):
    """Of consecutive steps: source_N, int64, whose turn it is; nth_N, int64, how many turns that source had before."""

    source_N: np.ndarray
    nth_N: np.ndarray


class TurnTaking(Protocol):
    """Turns by blocks of steps."""

    def block(self, number: int) -> Turns:
        """The turns of steps number * BLOCK up to that of the next number."""


class Alternate:
    """A fixed pattern: after any number of steps each source had as many turns as Sainte-Lague's method gives it.

    That division of s turns minimises the sum over sources of (turns - s * share)^2 / share (Sainte-Lague 1910), and
    never takes a turn back when s grows. Source k's turn j (from 0) has the time (2j + 1) / weight_k; turns come in the
    order of their times, of equal ones the first source's first. So a part of the sequence is a sort of a few
    candidates, without what came before.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self._weight_K = np.array(weights)
        self._share_K = self._weight_K / self._weight_K.sum()
        self.block = lru_cache(maxsize=4)(self._block)

    def _block(self, number: int) -> Turns:
        begin, end = number * BLOCK, (number + 1) * BLOCK
        # A source's turns stay within (K + 1) / 2 of its share of the steps, so these are candidates enough.
        margin = len(self._share_K) + 1
        low_K = np.maximum(np.floor(begin * self._share_K).astype(np.int64) - margin, 0)
        high_K = np.ceil(end * self._share_K).astype(np.int64) + margin
        nth_N = np.concatenate([np.arange(low, high) for low, high in zip(low_K, high_K, strict=True)])
        source_N = np.repeat(np.arange(len(low_K)), high_K - low_K)
        by_time_N = np.lexsort((source_N, (2 * nth_N + 1) / self._weight_K[source_N]))
        mine_N = by_time_N[begin - low_K.sum() : end - low_K.sum()]
        return Turns(source_N[mine_N], nth_N[mine_N])


class Sampled:
    """Each step's source drawn by itself, with the weights as probabilities, by a keyed hash of its number."""

    def __init__(self, weights: Sequence[float], seed: int) -> None:
        self._upper_K = np.cumsum(weights) / np.sum(weights)
        self._key = mix_key(seed, TURN)
        self._before_BK = [np.zeros(len(weights), np.int64)]
        # Batches are made ahead by other threads than the one that asks where an epoch ends.
        self._lock = Lock()
        self.block = lru_cache(maxsize=4)(self._block)

    def _block(self, number: int) -> Turns:
        source_N = self._draw(number)
        with self._lock:
            while len(self._before_BK) <= number:
                drawn_N = self._draw(len(self._before_BK) - 1)
                self._before_BK.append(self._before_BK[-1] + np.bincount(drawn_N, minlength=len(self._upper_K)))
            before_K = self._before_BK[number]
        nth_N = np.empty_like(source_N)
        for source, before in enumerate(before_K):
            mine_N = source_N == source
            nth_N[mine_N] = before + np.arange(np.count_nonzero(mine_N))
        return Turns(source_N, nth_N)

    def _draw(self, number: int) -> np.ndarray:
        """int64 (BLOCK,): a uniform number of 53 bits a step, and the source whose part of [0, 1) holds it."""
        lot_N = keyed_hash(np.arange(number * BLOCK, (number + 1) * BLOCK), self._key) >> np.uint64(11)
        return np.searchsorted(self._upper_K[:-1], lot_N / float(1 << 53), side="right")


# From weights and a seed, which a fixed pattern has no use for.
CHOICES: dict[str, Callable[[Sequence[float], int], TurnTaking]] = {
    "alternate": lambda weights, _: Alternate(weights),
    "sampled": Sampled,
}
