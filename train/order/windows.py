"""unit=window: every window once an epoch, dealt so that a video is no more often in a batch than it must."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from train.order.classes import LengthClasses
from train.order.draws import VIDEOS
from train.order.layout import VideoLayout, runs
from train.order.lengths import Lengths
from train.order.wanted import Wanted
from train.permutation import Permutation, mix_key

_AT_ONCE = 1 << 20


class EveryWindow:
    """The windows of each class, dealt to its batches."""

    # Neighbours in the deal hold the same videos, therefore batches must come in a permuted order.
    permuted = False

    def __init__(self, decks: Sequence[_Deck]) -> None:
        self._decks = tuple(decks)

    def counts(self, _epoch: int, /) -> tuple[int, ...]:
        """Samples of each class, the same in every epoch."""
        return tuple(deck.size for deck in self._decks)

    def batch(self, wanted: Wanted) -> np.ndarray:
        """int64 (size,): windows."""
        return self._decks[wanted.group].deal(wanted)


def every_window(layout: VideoLayout, seed: int) -> EveryWindow:
    """All windows as one class."""
    return EveryWindow([_Deck(layout, None, layout.first_V, layout.count_V, seed)])


def every_window_by_length(layout: VideoLayout, seed: int, classes: LengthClasses, lengths: Lengths) -> EveryWindow:
    """Windows by class; a number is held for each window (4 bytes, from 2^31 windows on 8)."""
    ends_C, place_W = _places_by_class(layout, classes, lengths)
    decks = []
    for group, place_N in enumerate(np.split(place_W, ends_C[:-1])):
        first_V, count_V = runs(np.searchsorted(layout.first_V, place_N, side="right"))
        decks.append(_Deck(layout, place_N, first_V, count_V, mix_key(seed, group)))
    return EveryWindow(decks)


class _Deck:
    """Windows of one class, video after video.

    place_N: their places in the layout, None for all of them. first_V, count_V: of its videos, counted within it.
    """

    def __init__(
        self,
        layout: VideoLayout,
        place_N: np.ndarray | None,
        first_V: np.ndarray,
        count_V: np.ndarray,
        seed: int,
    ) -> None:
        self._layout, self._place_N, self._first_V, self._count_V = layout, place_N, first_V, count_V
        self._seed = seed
        self.size = layout.size if place_N is None else len(place_N)
        self._shuffled = lru_cache(maxsize=2)(self._shuffled_videos)

    def deal(self, wanted: Wanted) -> np.ndarray:
        """Dealt like cards, one to each batch in turn: a video with n windows is at most ceil(n / steps) times in one.

        Positions behind the last window are those of the beginning, shifted by one where a batch would get its own
        windows again; what is filled in can bring a video once more than that, and a window only to another batch.
        """
        position_B = wanted.number + np.arange(wanted.size) * wanted.steps
        behind_B = position_B >= self.size
        position_B[behind_B] += (self.size % wanted.steps == 0) - self.size
        video_V, end_V = self._shuffled(wanted.epoch)
        slot_B = np.searchsorted(end_V, position_B, side="right")
        video_B = video_V[slot_B]
        within_B = position_B - (end_V[slot_B] - self._count_V[video_B])
        place_B = self._first_V[video_B] + within_B
        if self._place_N is not None:
            place_B = self._place_N[place_B].astype(np.int64)
        return self._layout.windows(place_B)

    def _shuffled_videos(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The epoch's order of videos, and where each one's windows end in it."""
        videos = Permutation(len(self._count_V), mix_key(self._seed, epoch, VIDEOS))
        video_V = videos.take(0, videos.size)
        return video_V, np.cumsum(self._count_V[video_V])


def _places_by_class(layout: VideoLayout, classes: LengthClasses, lengths: Lengths) -> tuple[np.ndarray, np.ndarray]:
    """Where each class ends, and the places of all windows, class after class, in each video after video."""
    class_W = np.empty(layout.size, np.uint8)
    for start in range(0, layout.size, _AT_ONCE):
        place_N = np.arange(start, min(start + _AT_ONCE, layout.size))
        class_W[place_N] = classes.of(lengths.of(layout.windows(place_N)))
    number = np.int32 if layout.size < 2**31 else np.int64
    count_C = np.bincount(class_W, minlength=len(classes.sizes_C))
    return np.cumsum(count_C), np.argsort(class_W, kind="stable").astype(number)
