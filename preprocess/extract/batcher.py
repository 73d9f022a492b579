"""Clips of many videos, in batches of one fixed shape, and the rows back to their videos in order."""

from __future__ import annotations

from itertools import groupby
from typing import Protocol

import numpy as np
import torch

from preprocess.extract.base import Extractor
from preprocess.extract.runtime import out_of_memory
from shared.errors import Failure


class RowSink(Protocol):
    def put(self, video: str, rows: np.ndarray) -> None:
        """The next rows (N, *row_shape) of `video`, in the order in which its clips were added; a copy of its own."""
        ...

    def fail(self, video: str, failure: Failure) -> None:
        """Rows of `video` cannot be stored; rows of it may have come before, and may still come."""
        ...


class FixedBatcher:
    """Fills batches across videos and computes each in exactly `spec.batch_size` clips, the last one padded.

    stream: whose rows these are, for messages.
    Holds at most one batch of prepared clips, whatever the number and length of the videos. Extractors give a row
    the same bytes at every place of a batch, so nothing depends on which videos share one. Not thread-safe.
    """

    def __init__(self, extractor: Extractor, sink: RowSink, stream: str = "") -> None:
        self._extractor = extractor
        self._stream = stream
        self._sink = sink
        self._videos: list[str] = []
        self._clips: torch.Tensor | None = None

    def add(self, video: str, frames_THWC: np.ndarray) -> None:
        """One clip, uint8 (T, H, W, 3), to become the next row of `video`.

        Raises ComputeOutOfMemory where the batch does not fit the device: the batcher is then of no more use.
        """
        self.add_prepared(video, self._extractor.prepare(frames_THWC))

    def add_prepared(self, video: str, clip: torch.Tensor) -> None:
        """As `add`, for a clip that has been through `extractor.prepare` already (in another thread, say)."""
        clips = self._buffer(clip)
        if clip.shape != clips.shape[1:] or clip.dtype != clips.dtype:
            raise ValueError(
                f"prepared clips have one shape: expected {tuple(clips.shape[1:])} {clips.dtype}, "
                f"got {tuple(clip.shape)} {clip.dtype} for {video}"
            )
        clips[len(self._videos)].copy_(clip)
        self._videos.append(video)
        if len(self._videos) == self._extractor.spec.batch_size:
            self.flush()

    def pending(self, video: str) -> int:
        """Clips of `video` that have been added and whose rows have not yet come."""
        return self._videos.count(video)

    def discard(self, video: str) -> None:
        """Forget the pending clips of `video`, whose decoding failed half way."""
        kept = [place for place, owner in enumerate(self._videos) if owner != video]
        if self._clips is not None:
            self._clips[: len(kept)] = self._clips[kept]
        self._videos = [self._videos[place] for place in kept]

    def flush(self) -> None:
        """Compute what is pending, padded to the one shape. Call it at the end of a shard."""
        count = len(self._videos)
        if count == 0 or self._clips is None:
            return
        self._clips[count:] = self._clips[count - 1].clone()  # padding is a real clip: its numbers are ordinary
        try:
            rows = self._extractor.compute(self._clips)
        except torch.OutOfMemoryError as error:
            raise out_of_memory(error, self._extractor.spec.batch_size, self._stream) from error
        videos, self._videos = self._videos, []
        first = 0
        for video, run in groupby(videos):
            after = first + len(list(run))
            self._deliver(video, rows[first:after])
            first = after

    def _deliver(self, video: str, rows: np.ndarray) -> None:
        if rows.dtype.kind == "f" and not np.isfinite(rows).all():
            message = f"features are not finite in {rows.dtype}; where they overflow float16, use `dtype: float32`"
            self._sink.fail(video, Failure("non_finite", "extract", message))
            return
        self._sink.put(video, rows.copy())

    def _buffer(self, clip: torch.Tensor) -> torch.Tensor:
        if self._clips is None:
            size = self._extractor.spec.batch_size
            self._clips = torch.empty((size, *clip.shape), dtype=clip.dtype, pin_memory=torch.cuda.is_available())
        return self._clips
