"""What a config may say of the order of one store's samples."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, field_validator

from shared.config import Config

# Classes are numbered in one byte a window.
_MOST_CLASSES = 255


class BucketsConfig(Config):
    """Batches of one length class each: little is padded, and every rank does the same work.

    A window belongs to the smallest bound that it fits in. A batch of a class holds min(batch_size, budget // bound)
    windows, rounded down to a multiple of `multiple`, in arrays of exactly that bound, so that nothing depends on which
    windows share a batch.

    by: `rows` of the window, at most data.max_rows; or `tokens` of the longest caption of its bag, at most
    data.max_tokens. budget: most rows, or tokens (counted once a window, whatever order.candidates), that a batch
    holds, padding included. bounds: the greatest length of each class, in rising order, null for powers of two up to
    the longest of the split; the last one must reach that, and is lowered to it. A bound that an epoch has on average
    fewer windows of than one batch is passed over: these windows go with the next longer ones. multiple: what the sizes
    of batches are multiples of; the number of ranks must divide it.
    """

    by: Literal["rows", "tokens"] = "rows"
    budget: int = Field(ge=1, lt=2**63)
    bounds: tuple[Annotated[int, Field(ge=1, lt=2**31)], ...] | None = Field(
        default=None, min_length=1, max_length=_MOST_CLASSES
    )
    multiple: int = Field(default=8, ge=1, lt=2**31)

    @field_validator("bounds")
    @classmethod
    def _rising(cls, bounds: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if bounds is not None and any(low >= high for low, high in pairwise(bounds)):
            raise ValueError("bounds must rise from one to the next")
        return bounds


class OrderConfig(Config):
    """unit: `video` takes each video once an epoch, with one of its windows at random (as MIL-NCE does); `window` takes
    each window once an epoch.

    candidates: K, captions a sample. captions: `nearest` takes the first K of the bag, `random` draws K of it without
    repetition, anew in every epoch. A bag with fewer than K leaves slots empty.

    remainder: what becomes of the samples that do not fill an epoch's last batch: `drop` leaves them out, other ones in
    every epoch; `fill` completes that batch from the beginning of the same epoch, so that a few samples come twice.
    buckets: batches by length, null for batches of one size and shape.
    """

    unit: Literal["video", "window"] = "video"
    candidates: int = Field(default=5, ge=1, le=4096)
    captions: Literal["nearest", "random"] = "nearest"
    remainder: Literal["drop", "fill"] = "drop"
    buckets: BucketsConfig | None = None
