"""The batches of one store."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from shared.errors import RequestError
from train.order.balance import balanced
from train.order.base import BatchOrder, Shape
from train.order.captions import choose_captions
from train.order.classes import LengthClasses, length_classes
from train.order.config import OrderConfig
from train.order.draws import BATCHES
from train.order.epochs import CountedEpochs, EqualEpochs
from train.order.layout import VideoLayout
from train.order.lengths import Lengths, samples_by_class
from train.order.selection import Selection
from train.order.videos import OneOfEachVideo, OneOfEachVideoByLength
from train.order.wanted import Wanted
from train.order.windows import every_window, every_window_by_length
from train.permutation import Permutation, mix_key


class Supply(Protocol):
    """The samples of an epoch by class. permuted: whether its batches stand in a random order already."""

    permuted: bool

    def counts(self, epoch: int, /) -> tuple[int, ...]:
        """Samples of each class."""

    def batch(self, wanted: Wanted) -> np.ndarray:
        """int64 (wanted.size,): window numbers."""


class Order(BatchOrder):
    """The global batches of one split of a store.

    video_W: the video of each window, any integers. bag_W: captions in each window's bag. lengths: of the windows, in
    what `config.buckets.by` says, else in rows; long and short ones are spread over the ranks by it.
    identity: what the windows come from (set and stream fingerprints); part of the state, so that a changed store is
    noticed. where: the place of its keys, for messages. Raises RequestError where no batch can be filled.

    remainder=drop: what does not fill a batch is left out of the epoch; since every epoch has its own permutation, it
    is another remainder each time. remainder=fill: that batch is completed from the beginning of the epoch's sequence,
    and nothing is left out but a class of which an epoch has less than one batch; no batch holds a sample twice, nor
    with unit=video a video. Both hold for each length class by itself.
    """

    def __init__(
        self,
        video_W: np.ndarray,
        bag_W: np.ndarray,
        lengths: Lengths,
        *,
        batch_size: int,
        seed: int,
        config: OrderConfig,
        identity: dict[str, Any],
        where: str = "",
    ) -> None:
        self._bag_W, self._lengths, self._seed, self._config = bag_W, lengths, seed, config
        buckets = config.buckets
        layout = VideoLayout(video_W)
        self._classes = None
        if buckets:
            classes = length_classes(buckets, batch_size=batch_size, longest=lengths.longest, where=where)
            self._classes = classes.worth_a_batch(samples_by_class(layout, classes, lengths, unit=config.unit))
        self._sizes_C = self._classes.sizes_C if self._classes else (batch_size,)
        self._supply = _supply(layout, seed, config, self._classes, lengths)
        self._counts = lru_cache(maxsize=4)(self._supply.counts)
        self._layout = lru_cache(maxsize=4)(self._batches_of_epoch)
        first = sum(self._steps(0))
        if first == 0:
            raise RequestError(self._too_large(batch_size, video_W, where))
        varies = isinstance(self._supply, OneOfEachVideoByLength)
        self._epochs = CountedEpochs(lambda epoch: sum(self._steps(epoch))) if varies else EqualEpochs(first)
        seen = (steps * size for steps, size in zip(self._steps(0), self._sizes_C, strict=True))
        self.left_out = sum(max(0, count - most) for count, most in zip(self._counts(0), seen, strict=True))
        self.identity = identity | {
            "longest": lengths.longest,
            "batch_size": batch_size,
            "seed": seed,
            "order": config.model_dump(mode="json"),
        }

    def place(self, step: int) -> tuple[int, int]:
        """The epoch that `step` is in, and its number within it."""
        return self._epochs.place(step)

    def steps_before(self, epoch: int) -> int:
        """Steps of all epochs before `epoch`; where they differ, each is counted by a pass over the videos."""
        return self._epochs.steps_before(epoch)

    def batch(self, step: int) -> Selection:
        """Global batch number `step`, counted through all epochs."""
        epoch, within = self.place(step)
        ends_C, batches = self._layout(epoch)
        place = within if batches is None else int(batches.take(within, within + 1)[0])
        group = int(np.searchsorted(ends_C, place, side="right"))
        steps = self._steps(epoch)
        number = place - int(ends_C[group]) + steps[group]
        window_B = self._supply.batch(Wanted(epoch, group, number, self._sizes_C[group], steps[group]))
        window_B = window_B[balanced(self._lengths.of(window_B))]
        choice_BK = choose_captions(window_B, self._bag_W[window_B], self._config, seed=self._seed, epoch=epoch)
        return Selection(window_B, choice_BK, **(self._classes.arrays(group) if self._classes else {}))

    def shapes(self) -> list[Shape]:
        """Every shape that a batch may have: one a class."""
        arrays = [self._classes.arrays(group) if self._classes else {} for group in range(len(self._sizes_C))]
        return [
            Shape(0, size, array.get("rows"), array.get("tokens"))
            for size, array in zip(self._sizes_C, arrays, strict=True)
        ]

    def _steps(self, epoch: int) -> tuple[int, ...]:
        """Batches of each class."""
        return tuple(
            -(-count // size) if self._config.remainder == "fill" and count >= size else count // size
            for count, size in zip(self._counts(epoch), self._sizes_C, strict=True)
        )

    def _batches_of_epoch(self, epoch: int) -> tuple[np.ndarray, Permutation | None]:
        """Where each class ends in the list of the epoch's batches, and the order in which these come."""
        ends_C = np.cumsum(self._steps(epoch))
        if self._supply.permuted:
            return ends_C, None
        return ends_C, Permutation(int(ends_C[-1]), mix_key(self._seed, epoch, BATCHES))

    def _too_large(self, batch_size: int, video_W: np.ndarray, where: str) -> str:
        unit, most = self._config.unit, max(self._counts(0))
        text = (
            f"{where}batch_size={batch_size}, but the split has {len(np.unique(video_W))} videos with windows "
            f"({len(video_W)} windows) and {where}order.unit={unit}: not one batch can be filled; "
        )
        if self._classes:
            sizes = ", ".join(f"{n} of {s}" for n, s in zip(self._counts(0), self._sizes_C, strict=True))
            return text + (
                f"its length classes have {sizes} that they need: lower {where}batch_size or "
                f"{where}order.buckets.multiple, or give fewer order.buckets.bounds"
            )
        windows_suffice = unit == "video" and len(video_W) >= batch_size
        return text + f"use at most {where}batch_size={most}" + (f" or {where}order.unit=window" * windows_suffice)


def _supply(
    layout: VideoLayout, seed: int, config: OrderConfig, classes: LengthClasses | None, lengths: Lengths
) -> Supply:
    if classes is None:
        return OneOfEachVideo(layout, seed) if config.unit == "video" else every_window(layout, seed)
    by_length = OneOfEachVideoByLength if config.unit == "video" else every_window_by_length
    return by_length(layout, seed, classes, lengths)
