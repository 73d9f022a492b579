"""unit=video: each video once an epoch, with one of its windows at random."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from train.order.classes import LengthClasses
from train.order.draws import VIDEOS, WINDOW
from train.order.layout import VideoLayout
from train.order.lengths import Lengths
from train.order.wanted import Wanted
from train.permutation import Permutation, keyed_hash, mix_key


class OneOfEachVideo:
    """Videos in a permuted order, any part of it without the rest. The order is random, so batches need no other."""

    permuted = True

    def __init__(self, layout: VideoLayout, seed: int) -> None:
        self._layout, self._seed = layout, seed
        self._videos = lru_cache(maxsize=2)(self._permuted_videos)

    def counts(self, _epoch: int, /) -> tuple[int, ...]:
        """Samples of each class: one class, the same in every epoch."""
        return (len(self._layout.count_V),)

    def batch(self, wanted: Wanted) -> np.ndarray:
        """int64 (size,): windows; behind the last video comes the first one again."""
        videos = self._videos(wanted.epoch)
        begin, end = wanted.number * wanted.size, (wanted.number + 1) * wanted.size
        video_B = videos.take(begin, min(end, videos.size))
        if end > videos.size:
            video_B = np.concatenate([video_B, videos.take(0, end - videos.size)])
        return drawn_windows(self._layout, video_B, self._seed, wanted.epoch)

    def _permuted_videos(self, epoch: int) -> Permutation:
        return Permutation(len(self._layout.count_V), mix_key(self._seed, epoch, VIDEOS))


class OneOfEachVideoByLength:
    """The same by length classes: which class a video is in, the epoch's window of it decides.

    So an epoch is one pass over all videos (not over windows), and its steps differ from the next one's.
    """

    permuted = False

    def __init__(self, layout: VideoLayout, seed: int, classes: LengthClasses, lengths: Lengths) -> None:
        self._layout, self._seed, self._classes, self._lengths = layout, seed, classes, lengths
        # Two epochs, because batches are made ahead across an epoch's end.
        self._drawn = lru_cache(maxsize=2)(self._windows_and_classes)
        self._members = lru_cache(maxsize=2)(self._windows_by_class)

    def counts(self, epoch: int, /) -> tuple[int, ...]:
        """Samples of each class."""
        _, class_V = self._drawn(epoch)
        return tuple(np.bincount(class_V, minlength=len(self._classes.sizes_C)).tolist())

    def batch(self, wanted: Wanted) -> np.ndarray:
        """int64 (size,): windows; behind the last one of a class comes its first one again."""
        window_N = self._members(wanted.epoch)[wanted.group]
        return window_N[(wanted.number * wanted.size + np.arange(wanted.size)) % len(window_N)]

    def _windows_and_classes(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The epoch's window of each video, and its class."""
        drawn_V = drawn_windows(self._layout, np.arange(len(self._layout.count_V)), self._seed, epoch)
        return drawn_V, self._classes.of(self._lengths.of(drawn_V))

    def _windows_by_class(self, epoch: int) -> list[np.ndarray]:
        """Of each class, the windows of the epoch in the order of its permutation of videos."""
        drawn_V, class_V = self._drawn(epoch)
        video_V = Permutation(len(drawn_V), mix_key(self._seed, epoch, VIDEOS)).take(0, len(drawn_V))
        video_V = video_V[np.argsort(class_V[video_V], kind="stable")]
        return np.split(drawn_V[video_V], np.cumsum(self.counts(epoch))[:-1])


def drawn_windows(layout: VideoLayout, video_N: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """int64 (N,): the epoch's window of each video, as a number in the split."""
    lot_N = keyed_hash(video_N, mix_key(seed, epoch, WINDOW)) % layout.count_V[video_N].astype(np.uint64)
    return layout.windows(layout.first_V[video_N] + lot_N.astype(np.int64))
