"""Small splits to order, and sequences that can be compared."""

from __future__ import annotations

import numpy as np
import pytest

from train.order import Mixture, Order, OrderConfig
from train.order.lengths import Lengths

RANDOM = np.random.RandomState(3)
VIDEO_W = np.sort(RANDOM.randint(0, 40, 300)) * 7
BAG_W = RANDOM.randint(0, 6, 300)
ROWS_W = np.minimum(RANDOM.geometric(0.15, 300), 60)
# Enough videos for batches of several lengths.
LARGE = {"video_W": np.sort(RANDOM.randint(0, 200, 900)), "bag_W": RANDOM.randint(0, 6, 900)}
LARGE["rows_W"] = np.minimum(RANDOM.geometric(0.1, 900), 60)
BY_ROWS = {"budget": 720, "multiple": 12, "bounds": [4, 16, 60]}


def make_order(*, video_W=VIDEO_W, bag_W=None, rows_W=None, longest=None, batch_size=12, seed=1, name="aa", **config):
    """An order of the split above, or of another one; `config` is what OrderConfig takes."""
    if bag_W is None:
        bag_W = BAG_W if video_W is VIDEO_W else np.ones(len(video_W), int)
    if rows_W is None:
        rows_W = ROWS_W if video_W is VIDEO_W else np.ones(len(video_W), int)
    lengths = Lengths(np.asarray(rows_W), longest or int(max(rows_W)))
    settings = OrderConfig(**{"candidates": 3, **config})
    return Order(video_W, bag_W, lengths, batch_size=batch_size, seed=seed, config=settings, identity={"set": name})


def make_mixture(choice="alternate", weights=(3.0, 2.0, 0.5), seed=1):
    """Three sources: by length, each window, plain."""
    orders = [
        make_order(**LARGE, buckets=BY_ROWS, batch_size=36),
        make_order(unit="window", batch_size=48, seed=5, name="bb", captions="random"),
        make_order(batch_size=12, seed=6, name="cc", remainder="fill"),
    ]
    return Mixture(orders, ["a", "b", "c"], weights, choice, seed)


def plain(selection):
    """A selection as one comparable value."""
    arrays = selection.window_B.tolist(), selection.choice_BK.tolist()
    return (*arrays, selection.source, selection.rows, selection.tokens)


def sequence(order, steps):
    return [plain(order.batch(step)) for step in steps]


@pytest.fixture(name="make", scope="session")
def make_fixture():
    return make_order


@pytest.fixture(name="mixture", scope="session")
def mixture_fixture():
    return make_mixture


@pytest.fixture(name="sequence", scope="session")
def sequence_fixture():
    return sequence


@pytest.fixture(scope="session")
def split():
    """video_W, bag_W, rows_W of the split that `make()` orders."""
    return VIDEO_W, BAG_W, ROWS_W


# Every kind of order: a way to make a fresh one.
KINDS = {
    "video": lambda: make_order(),
    "window": lambda: make_order(unit="window", captions="random"),
    "video, filled": lambda: make_order(remainder="fill", captions="random"),
    "window, filled": lambda: make_order(unit="window", remainder="fill"),
    "video by rows": lambda: make_order(**LARGE, buckets=BY_ROWS, batch_size=36, captions="random"),
    "video by rows, filled": lambda: make_order(**LARGE, buckets=BY_ROWS, batch_size=36, remainder="fill"),
    "window by tokens": lambda: make_order(**LARGE, unit="window", buckets=BY_ROWS | {"by": "tokens"}, batch_size=60),
    "window by rows, filled": lambda: make_order(
        **LARGE, unit="window", buckets={"budget": 720, "multiple": 12}, batch_size=60, remainder="fill"
    ),
    "alternate": make_mixture,
    "sampled": lambda: make_mixture("sampled"),
}


@pytest.fixture(params=KINDS)
def fresh(request):
    """A function that makes the same order anew."""
    return KINDS[request.param]
