"""Which sample comes when: a pure function of (seed, epoch, step, rank, world size).

The state of a run is one integer, the number of global batches that were trained on. The sequence of global batches
does not depend on the world size; rank r of W takes the r-th of W contiguous parts of each.

`order.py` puts a batch together, from `videos.py` (one window of each video) or `windows.py` (every window), by the
length classes of `classes.py`, arranged by `balance.py`, with the captions of `captions.py`. `mixture.py` takes turns
between several stores.
"""

from train.order.base import BatchOrder, Shape
from train.order.config import BucketsConfig, OrderConfig
from train.order.mixture import Mixture, MixtureConfig, SourceConfig
from train.order.order import Order
from train.order.ranks import check_batch_size, check_ranks
from train.order.selection import Selection

__all__ = [
    "BatchOrder",
    "BucketsConfig",
    "Mixture",
    "MixtureConfig",
    "Order",
    "OrderConfig",
    "Selection",
    "Shape",
    "SourceConfig",
    "check_batch_size",
    "check_ranks",
]
