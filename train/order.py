"""Which sample comes when: a pure function of (seed, epoch, step, rank, world size).

The state of a run is one integer, the number of global batches that were trained on. The sequence of global batches
does not depend on the world size; rank r of W takes the r-th of W contiguous parts of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from shared.config import Config
from shared.errors import RequestError
from shared.fingerprint import fingerprint
from train.permutation import Permutation, keyed_hash, mix_key

# What a key is for: two draws never share one.
_VIDEOS, _WINDOW, _DEAL, _CAPTIONS = range(4)


class OrderConfig(Config):
    """unit: `video` takes each video once an epoch, with one of its windows at random (as MIL-NCE does); `window` takes
    each window once an epoch.

    candidates: K, captions a sample. captions: `nearest` takes the first K of the bag, `random` draws K of it without
    repetition, anew in every epoch. A bag with fewer than K leaves slots empty.
    """

    unit: Literal["video", "window"] = "video"
    candidates: int = Field(default=5, ge=1, le=4096)
    captions: Literal["nearest", "random"] = "nearest"


@dataclass(frozen=True)
class Selection:
    """Samples in order. window_B: int64, window numbers. choice_BK: int64, places in each window's bag, -1 for none."""

    window_B: np.ndarray
    choice_BK: np.ndarray

    def part(self, rank: int, size: int) -> Selection:
        """The rank-th of `size` contiguous parts; `size` divides the batch (see `check_batch_size`)."""
        count = len(self.window_B) // size
        mine = slice(rank * count, (rank + 1) * count)
        return Selection(self.window_B[mine], self.choice_BK[mine])


def check_batch_size(batch_size: int, world_size: int) -> None:
    """Raise RequestError unless the ranks can share a global batch evenly, naming the nearest size that they can."""
    if batch_size % world_size:
        down = batch_size // world_size * world_size
        up = down + world_size
        nearest = up if down == 0 or up - batch_size < batch_size - down else down
        raise RequestError(
            f"batch_size={batch_size} is the global batch, and {world_size} ranks do not divide it; "
            f"the nearest that they do is batch_size={nearest}"
        )


class Order:
    """The global batches of a run.

    video_W: the video of each window, any integers. bag_W: captions in each window's bag.
    identity: what the windows come from (set and stream fingerprints); part of the state, so that a changed store is
    noticed. Raises RequestError where not even one batch an epoch can be filled.

    The remainder that does not fill a batch is left out of the epoch; since every epoch has its own permutation, it is
    another remainder each time.
    """

    def __init__(
        self,
        video_W: np.ndarray,
        bag_W: np.ndarray,
        *,
        batch_size: int,
        seed: int,
        config: OrderConfig,
        identity: dict[str, Any],
    ) -> None:
        self._batch_size, self._seed, self._config = batch_size, seed, config
        self._bag_W = bag_W
        # A set that clipmill wrote has its windows video after video: then nothing is held for each of millions.
        in_order = bool((video_W[1:] >= video_W[:-1]).all())
        self._window_of = None if in_order else np.argsort(video_W, kind="stable")
        begins_W = np.ones(len(video_W), bool)
        begins_W[1:] = np.diff(video_W if self._window_of is None else video_W[self._window_of]) != 0
        self._first_V = np.flatnonzero(begins_W)
        self._count_V = np.diff(self._first_V, append=len(video_W))
        units = len(self._count_V) if config.unit == "video" else len(video_W)
        if units < batch_size:
            raise RequestError(
                f"batch_size={batch_size}, but the split has {len(self._count_V)} videos with windows "
                f"({len(video_W)} windows) and order.unit={config.unit}: not one batch can be filled; "
                f"use at most batch_size={units}" + (" or order.unit=window" if config.unit == "video" else "")
            )
        self.steps_per_epoch = units // batch_size
        self.left_out = units % batch_size
        self.identity = identity | {"batch_size": batch_size, "seed": seed, "order": config.model_dump(mode="json")}
        self._epoch_cache: tuple[int, Permutation, np.ndarray] | None = None

    def batch(self, step: int) -> Selection:
        """Global batch number `step` (0-based, through all epochs)."""
        epoch, within = divmod(step, self.steps_per_epoch)
        pick = self._one_per_video if self._config.unit == "video" else self._dealt
        window_B = pick(epoch, within)
        return Selection(window_B, self._choose_captions(window_B, epoch))

    def state(self, step: int) -> dict[str, Any]:
        """What a checkpoint keeps: the next step, and what the sequence depends on."""
        return {"step": step, "fingerprint": fingerprint(self.identity), "identity": self.identity}

    def _one_per_video(self, epoch: int, within: int) -> np.ndarray:
        videos, _ = self._epoch(epoch)
        video_B = videos.take(within * self._batch_size, (within + 1) * self._batch_size)
        drawn_B = keyed_hash(video_B, mix_key(self._seed, epoch, _WINDOW)) % self._count_V[video_B].astype(np.uint64)
        return self._windows(self._first_V[video_B] + drawn_B.astype(np.int64))

    def _dealt(self, epoch: int, within: int) -> np.ndarray:
        """Windows laid out video after video, dealt like cards to the batches of the epoch.

        So a video with n windows is at most ceil(n / steps) times in a batch, the least possible. Neighbours in the
        deal hold the same videos, therefore the batches come in a permuted order.
        """
        videos, end_V = self._epoch(epoch)
        steps = self.steps_per_epoch
        deal = Permutation(steps, mix_key(self._seed, epoch, _DEAL)).take(within, within + 1)
        position_B = deal + np.arange(self._batch_size) * steps
        place_B = np.searchsorted(end_V, position_B, side="right")
        video_B = videos.take(0, videos.size)[place_B]
        within_video_B = position_B - (end_V[place_B] - self._count_V[video_B])
        return self._windows(self._first_V[video_B] + within_video_B)

    def _windows(self, place_B: np.ndarray) -> np.ndarray:
        """Window numbers of places in the sequence of all windows, video after video."""
        return place_B if self._window_of is None else self._window_of[place_B]

    def _epoch(self, epoch: int) -> tuple[Permutation, np.ndarray]:
        """The epoch's permutation of videos; for unit=window also where each video's windows end in that order."""
        if self._epoch_cache is None or self._epoch_cache[0] != epoch:
            videos = Permutation(len(self._count_V), mix_key(self._seed, epoch, _VIDEOS))
            permuted = videos.take(0, videos.size if self._config.unit == "window" else 0)
            self._epoch_cache = epoch, videos, np.cumsum(self._count_V[permuted])
        return self._epoch_cache[1:]

    def _choose_captions(self, window_B: np.ndarray, epoch: int) -> np.ndarray:
        bag_B1 = self._bag_W[window_B][:, None]
        if self._config.captions == "nearest":
            choice_BK = np.broadcast_to(np.arange(self._config.candidates), (len(window_B), self._config.candidates))
            return np.where(choice_BK < bag_B1, choice_BK, -1)
        return self._draw_captions(window_B, bag_B1, mix_key(self._seed, epoch, _CAPTIONS))

    def _draw_captions(self, window_B: np.ndarray, bag_B1: np.ndarray, key: int) -> np.ndarray:
        """Every place of a bag gets a keyed number; the K smallest win. Absent places get the largest number."""
        places = np.arange(max(int(bag_B1.max(initial=0)), self._config.candidates))
        lot_BM = keyed_hash(keyed_hash(window_B, key)[:, None] + places.astype(np.uint64), key)
        lot_BM = np.where(places < bag_B1, lot_BM, np.uint64(0xFFFFFFFFFFFFFFFF))
        choice_BK = np.argsort(lot_BM, axis=1, kind="stable")[:, : self._config.candidates]
        return np.where(choice_BK < bag_B1, choice_BK, -1)
