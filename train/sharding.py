"""The optimizer's state spread over ranks: each updates a share of the parameters and sends them to the others.

ZeRO stage 1: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 5.1.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

Shard = Literal["none", 1]


def sharded_optimizer(
    kind: type[torch.optim.Optimizer], groups: list[dict[str, Any]], **options: Any
) -> torch.optim.Optimizer:
    """`kind(groups, **options)`, its state spread over the ranks of the process group, which must exist."""
    return ZeroRedundancyOptimizer(groups, optimizer_class=kind, **options)


def full_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """On rank 0 the state of all parameters, as one process has it; all ranks call it, others may get {}.

    Any optimizer of the same kind loads it, spread or not, at any world size.
    """
    if isinstance(optimizer, ZeroRedundancyOptimizer):
        optimizer.consolidate_state_dict(to=0)
        if dist.get_rank() != 0:
            return {}
    return optimizer.state_dict()
