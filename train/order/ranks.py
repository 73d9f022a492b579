"""Whether the ranks of a run can share its batches evenly."""

from __future__ import annotations

from shared.errors import RequestError
from train.order.config import OrderConfig


def check_ranks(config: OrderConfig, batch_size: int, world_size: int, where: str = "") -> None:
    """Raise RequestError unless every rank gets the same number of samples of every batch, naming what to set.

    where: the place of the keys, as `mixture.sources.webvid.`.
    """
    if config.buckets is None:
        check_batch_size(batch_size, world_size, where)
    elif config.buckets.multiple % world_size:
        multiple = config.buckets.multiple
        raise RequestError(
            f"{where}order.buckets.multiple={multiple}: {world_size} ranks do not divide it, so they cannot share "
            f"every batch evenly; the nearest that they do is {where}order.buckets.multiple="
            f"{_nearest(multiple, world_size)}"
        )


def check_batch_size(batch_size: int, world_size: int, where: str = "") -> None:
    """Raise RequestError unless the ranks can share a global batch evenly, naming the nearest size that they can."""
    if batch_size % world_size:
        raise RequestError(
            f"{where}batch_size={batch_size} is the global batch, and {world_size} ranks do not divide it; "
            f"the nearest that they do is {where}batch_size={_nearest(batch_size, world_size)}"
        )


def _nearest(number: int, divisor: int) -> int:
    down = number // divisor * divisor
    up = down + divisor
    return up if down == 0 or up - number < number - down else down
