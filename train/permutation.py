"""Keyed permutations with random access, and keyed hashes: integers in, the same integers out, on every machine.

numpy's own generators promise no stable streams between versions; an order that a checkpoint refers to must not move.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

_WORD = (1 << 64) - 1
_GAMMA, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

# Below this a table is cheap and needs no argument about the quality of a cipher on few bits.
TABLE_LIMIT = 65_536
_ROUNDS = 6
# An index costs several times as much in small blocks: compute much, keep it.
_BLOCK = 1 << 18


def mix_key(*parts: int) -> int:
    """One 64-bit key from integers, in order: `keyed_hash` in Python's own integers, which are faster for one."""
    key = 0
    for part in parts:
        z = ((key ^ part) * _GAMMA + _GAMMA) & _WORD
        z = ((z ^ (z >> 30)) * _MIX_1) & _WORD
        z = ((z ^ (z >> 27)) * _MIX_2) & _WORD
        key = z ^ (z >> 31)
    return key


def keyed_hash(x_N: np.ndarray, key: int) -> np.ndarray:
    """uint64, the shape of `x_N` (integers): splitmix64 (Steele et al. 2014). Injective for a given key."""
    z = x_N.astype(np.uint64) * np.uint64(_GAMMA) + np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX_2)
    return z ^ (z >> np.uint64(31))


class Permutation:
    """A permutation of 0 .. size-1 that a key chooses; any part of it without the rest."""

    def __init__(self, size: int, key: int) -> None:
        self.size, self._key = size, key
        small = size <= TABLE_LIMIT
        self._table = np.argsort(keyed_hash(np.arange(size), key), kind="stable") if small else None
        self._block = lru_cache(maxsize=2)(self._compute_block)

    def take(self, start: int, stop: int) -> np.ndarray:
        """int64 (stop - start,): the images of start .. stop-1."""
        if self._table is not None:
            return self._table[start:stop]
        numbers = range(start // _BLOCK, -(-stop // _BLOCK))
        whole = np.concatenate([self._block(number) for number in numbers])
        offset = numbers.start * _BLOCK
        return whole[start - offset : stop - offset]

    def _compute_block(self, number: int) -> np.ndarray:
        first = number * _BLOCK
        return feistel(np.arange(first, min(first + _BLOCK, self.size)), self.size, self._key)


def feistel(x_N: np.ndarray, size: int, key: int) -> np.ndarray:
    """int64: a keyed bijection of 0 .. size-1, by an alternating Feistel network on the next power of two.

    Values that leave the range walk on through the network until they are back in it (cycle walking: Black and
    Rogaway 2002). Six rounds look uniform, three do not.
    """
    bits = max(2, (size - 1).bit_length())
    low_bits = bits // 2
    low_mask, high_mask = np.uint64((1 << low_bits) - 1), np.uint64((1 << (bits - low_bits)) - 1)
    keys = [mix_key(key, number) for number in range(_ROUNDS)]
    out_N = x_N.astype(np.uint64)
    outside_N = np.ones(len(out_N), bool)
    while outside_N.any():
        walking = out_N[outside_N]
        low, high = walking & low_mask, walking >> np.uint64(low_bits)
        for high_key, low_key in zip(keys[::2], keys[1::2], strict=True):
            high = high ^ (keyed_hash(low, high_key) & high_mask)
            low = low ^ (keyed_hash(high, low_key) & low_mask)
        out_N[outside_N] = (high << np.uint64(low_bits)) | low
        outside_N = out_N >= size
    return out_N.astype(np.int64)
