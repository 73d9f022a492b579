"""What ranks spread among each other instead of each holding all of it, and what cannot be spread.

ZeRO: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 5.
Stage 1 spreads the optimizer's state: each rank updates a share of the parameters and sends them to the others. Stages
2 and 3 are `train.sharded_towers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer

from shared.errors import RequestError
from train.distributed import World

if TYPE_CHECKING:
    from train.config import FitConfig

Shard = Literal["none", 1, 2, 3]
_SPREAD: dict[Shard, str] = {
    1: "the optimizer's state",
    2: "gradients and the optimizer's state",
    3: "parameters, gradients and the optimizer's state",
}


def sharded_optimizer(
    kind: type[torch.optim.Optimizer], groups: list[dict[str, Any]], **options: Any
) -> torch.optim.Optimizer:
    """`kind(groups, **options)`, its state spread over the ranks of the process group, which must exist."""
    return ZeroRedundancyOptimizer(groups, optimizer_class=kind, **options)


def shards_towers(shard: Shard, ranks: int) -> bool:
    """Whether more than the optimizer is spread. One process has all of it."""
    return shard in (2, 3) and ranks > 1


def described(shard: Shard, offload: bool, world: World) -> str | None:
    """For people: what is spread; None where nothing is to be."""
    if shard == "none":
        return None
    if world.size == 1:
        return f"nothing: shard={shard} spreads {_SPREAD[shard]} over ranks, and this is one process"
    where = ", each share in CPU memory" if offload and world.device.type == "cuda" else ""
    return f"{_SPREAD[shard]} over {world.size} ranks (shard={shard}){where}"


def check_offload(offload: bool, world: World) -> None:
    """Raise RequestError where one GPU process asks for it: it spreads nothing, and nothing would be offloaded."""
    if offload and world.size == 1 and world.device.type == "cuda":
        raise RequestError(
            "offload=true on one process, which spreads nothing: start several ranks with `torchrun --standalone "
            "--nproc-per-node=N -m train ...`, or set offload=false"
        )


def shard_fault(config: FitConfig) -> str | None:
    """What a configuration asks for that cannot be had with what it spreads, and what to do; None where all can."""
    if config.shard not in (2, 3):
        if config.offload:
            return (
                f"offload=true with shard={config.shard}: only parameters that are spread over the ranks are kept in "
                "CPU memory; set shard=2 or shard=3, or leave offload out"
            )
        return None
    clash = next((text for text, asked in _clashes(config).items() if asked), None)
    if clash is None:
        return None
    return f"{clash}; leave it out, or set shard=1 or shard=none"


def _clashes(config: FitConfig) -> dict[str, bool]:
    spread = f"with shard={config.shard}"
    moco = config.negatives is not None and config.negatives.name == "moco"
    return {
        f"negatives.name=moco {spread}: the key towers follow whole weights, which no rank has": moco,
        f"compile=true {spread}: torch would compile across the layers that are gathered one by one": config.compile,
        f"sync_batch_norm=true {spread}: batch norms keep their statistics alike on all ranks by DDP, which is not "
        "used": config.sync_batch_norm,
        f"precision=float16 {spread}: its scale would have to be agreed on by ranks that each see a share of the "
        "gradients (precision=bfloat16 needs no scale)": config.precision == "float16",
        f"ddp.static_graph=true {spread}: gradients are averaged by FSDP2, not by DDP": config.ddp.static_graph,
        f"ddp.bucket_cap_mb={config.ddp.bucket_cap_mb} {spread}: gradients are averaged layer by layer, not in "
        "buckets": config.ddp.bucket_cap_mb != type(config.ddp)().bucket_cap_mb,
    }
