"""Which batch of an epoch is asked for."""

from __future__ import annotations

from typing import NamedTuple


class Wanted(NamedTuple):
    """Batch `number` of the `steps` that class `group` has in `epoch`, of `size` samples."""

    epoch: int
    group: int
    number: int
    size: int
    steps: int
