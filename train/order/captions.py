"""Which captions of its bag a sample brings."""

from __future__ import annotations

import numpy as np

from train.order.config import OrderConfig
from train.order.draws import CAPTIONS
from train.permutation import keyed_hash, mix_key


def choose_captions(
    window_B: np.ndarray, bag_B: np.ndarray, config: OrderConfig, *, seed: int, epoch: int
) -> np.ndarray:
    """int64 (B, K): places in each bag of `bag_B` captions, -1 where it has fewer."""
    bag_B1 = bag_B[:, None]
    if config.captions == "random":
        return _drawn(window_B, bag_B1, config.candidates, mix_key(seed, epoch, CAPTIONS))
    choice_BK = np.broadcast_to(np.arange(config.candidates), (len(window_B), config.candidates))
    return np.where(choice_BK < bag_B1, choice_BK, -1)


def _drawn(window_B: np.ndarray, bag_B1: np.ndarray, candidates: int, key: int) -> np.ndarray:
    """Every place of a bag gets a keyed number; the K smallest win. Absent places get the largest number."""
    places = np.arange(max(int(bag_B1.max(initial=0)), candidates))
    lot_BM = keyed_hash(keyed_hash(window_B, key)[:, None] + places.astype(np.uint64), key)
    lot_BM = np.where(places < bag_B1, lot_BM, np.uint64(0xFFFFFFFFFFFFFFFF))
    choice_BK = np.argsort(lot_BM, axis=1, kind="stable")[:, :candidates]
    return np.where(choice_BK < bag_B1, choice_BK, -1)
