"""A process with a loader and worker processes, for test_delivery_faults to kill: delivery_child.py STORE WORKERS

Prints the ids of its workers as soon as each has made a batch, then takes batches until it is stopped.
"""

from __future__ import annotations

import sys

import numpy as np

from shared.store import open_store
from train.data import WindowData
from train.delivery.config import DataConfig
from train.delivery.loader import Loader
from train.delivery.windows import first_captions


def main() -> None:
    data = WindowData(open_store(sys.argv[1]), "default", "train")
    chosen, workers = first_captions(np.arange(8), data.bag_W, 3), int(sys.argv[2])
    with Loader([data], [data.shape(8, 3)], config=DataConfig(workers=workers)) as loader:
        for step, _ in enumerate(loader.batches(lambda _: chosen, 0, 1 << 40)):
            if step == workers - 1:  # they take turns
                print(*(worker.pid for worker in loader._maker._workers), flush=True)


if __name__ == "__main__":
    main()
