"""A rank that cannot join ends: also where it waits for a program that took its call and never answers."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import EnvironmentLacking

# What torch itself raises when its time is over comes first, and says more.
_GRACE_S = 5.0


@contextmanager
def joined_within(timeout_s: float) -> Iterator[None]:
    """End the process, with a message and the exit code of EnvironmentLacking, where the block takes longer.

    From another thread, and without any clean-up: torch waits for the answer of a server inside of C++ without a
    limit of time, where no exception and no handler of a signal is run.
    """
    timer = threading.Timer(timeout_s + _GRACE_S, _give_up, (timeout_s,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _give_up(timeout_s: float) -> None:
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    print(
        f"error: no answer from rank 0 at MASTER_ADDR={address}, MASTER_PORT={port} within timeout_s={timeout_s:g}: "
        "another program may have that port, or rank 0 waits for ranks that did not start; see its log, or start with "
        "`torchrun --standalone`, which takes a free port",
        file=sys.stderr,
        flush=True,
    )
    os._exit(EnvironmentLacking.exit_code)
