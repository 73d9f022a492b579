"""`train fit`, and a signal that one rank sends itself after a given step, before anything of that step is saved.

python fit_worker.py CONFIG SIGNAL STEP RANK [key=value ...]
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from shared.cli import guarded
from shared.config import load_config
from train.config import FitConfig
from train.loop import Trainer, fit


def main() -> int:
    config, name, step, rank, *overrides = sys.argv[1:]
    after = Trainer._after

    def interrupted(self: Trainer, done: int, result: Any) -> None:
        if (done, self.world.rank) == (int(step), int(rank)):
            os.kill(os.getpid(), getattr(signal, name))
        after(self, done, result)

    Trainer._after = interrupted
    return guarded(lambda: fit(load_config(config, FitConfig, overrides)))


if __name__ == "__main__":
    sys.exit(main())
