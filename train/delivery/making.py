"""One batch into its slot: what the thread and the worker processes do alike."""

from __future__ import annotations

from collections.abc import Sequence

from train.delivery.arrays import BatchShape
from train.delivery.ring import Ring
from train.delivery.windows import WindowReader
from train.order import Selection


def make(
    selection: Selection, slot: int, ring: Ring, readers: Sequence[WindowReader], first_ids: Sequence[int]
) -> BatchShape:
    """Fill a slot with the batch that is selected, and tell its shape.

    first_ids: what is added to the video ids of each source, so that no two sources share one. Raises DamageFound.
    """
    reader = readers[selection.source]
    shape = reader.shape_of(selection)
    arrays = ring.arrays(slot, shape)
    reader.fill(selection, arrays)
    arrays.video_ids_B[...] += first_ids[selection.source]
    return shape
