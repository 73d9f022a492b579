"""How many worker processes suit a machine, and what they and the ring take."""

from __future__ import annotations

import os

# Of a host's cores, over all its ranks; the rest is for training itself.
_SHARE = 0.6


def available_cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def workers_for(cores: int, ranks: int) -> int:
    """Worker processes for each of `ranks` training processes on a host: 60 % of the cores together, at least one."""
    return max(1, round(_SHARE * cores / ranks))


def batches_ahead(workers: int, prefetch: int) -> int:
    """Batches that are made or being made beyond the one that is being trained on."""
    return max(1, workers) * prefetch


def ring_slots(workers: int, prefetch: int) -> int:
    """Slots of a ring: those ahead, the batch in use, and the one before it, which a loop's variable still names."""
    return batches_ahead(workers, prefetch) + 2
