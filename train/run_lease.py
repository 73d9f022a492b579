"""One job at a time in a run folder: two would write over each other's checkpoints and curves, and both end well."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.errors import RequestError, StoreError
from shared.lease import Leased, folder_lease, lease_holder, lease_job

_RUN = Leased(
    "run folder",
    "trained in",
    "wait for it, or stop it first, or give another folder with run=PATH",
    RequestError,
    lockless=True,
)


@contextmanager
def run_lease(run: Path, rank: int) -> Iterator[None]:
    """Rank 0 holds the folder for all ranks of its job while the block runs.

    Raises RequestError naming the process that has it, on other ranks, too: these would wait for rank 0.
    """
    if rank != 0:
        # Without a job's name, rank 0 of this one looks like another; it is refused where ranks join.
        if _job() is not None and is_others(run):
            raise RequestError(f"run folder {run} is being trained in by {lease_holder(run)}; {_RUN.advice}")
        yield
        return
    with folder_lease(run, _RUN, _job()):
        yield


def is_others(run: Path) -> bool:
    """Whether a job has the run folder of which this process is no rank."""
    try:
        held, job = lease_job(run)
    except StoreError:  # a file system without locks, which rank 0 has warned of
        return False
    return held and (job is None or job != _job())


def _job() -> str | None:
    """What all ranks of one job have in common, and no two jobs at once; None for a process by itself."""
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if address is None or port is None:
        return None
    # A host's own name for itself is that of every other host, too.
    host = socket.gethostname() if address in ("localhost", "127.0.0.1", "::1") else address
    return f"{host}:{port}"
