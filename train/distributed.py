"""Ranks that act as one: start and end of the process group, and the collectives that training needs.

Everything here works without a process group too (world size 1), and the same on gloo (CPU) and NCCL (GPU).

One convention holds everywhere: **the global loss is the mean over ranks of each rank's loss**. `gather_rows` returns
the gradient of the *sum* of the ranks' losses, and DDP divides by the number of ranks; together that is exactly the
gradient of the global loss, for the towers as for a parameter that only the loss touches (the temperature).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist

from shared.errors import EnvironmentLacking, RequestError
from train.joining import joined_within
from train.timing import COMMUNICATION

DeviceName = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class World:
    """Where this process stands. `size` 1 means that no process group exists and collectives are identities."""

    rank: int
    size: int
    local_rank: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        return self.rank == 0


ALONE = World(0, 1, 0, torch.device("cpu"))


@contextmanager
def distributed_world(device: DeviceName = "auto", timeout_s: float = 600.0) -> Iterator[World]:
    """`init_distributed`, and the process group is destroyed whatever happens inside."""
    world = init_distributed(device, timeout_s)
    try:
        yield world
    finally:
        shutdown_distributed()


def init_distributed(device: DeviceName = "auto", timeout_s: float = 600.0) -> World:
    """Join the process group that torchrun's environment describes; without torchrun, a world of one.

    timeout_s: seconds after which a collective that some rank never joins is an error instead of a hang; the process
    ends (see `joined_within`) where the group itself is not joined by then. Raises EnvironmentLacking when CUDA is
    asked for and absent, or MASTER_PORT is in use; RequestError for an environment that is half set or wrong.
    """
    rank, size, local_rank = _ranks()
    target = _device(device, local_rank)
    if target.type == "cuda":
        torch.cuda.set_device(target)
    if size > 1:
        with joined_within(timeout_s), _busy_port_explained():
            dist.init_process_group(
                backend="nccl" if target.type == "cuda" else "gloo",
                rank=rank,
                world_size=size,
                timeout=timedelta(seconds=timeout_s),
                device_id=target if target.type == "cuda" else None,
            )
    return World(rank, size, local_rank, target)


@contextmanager
def _busy_port_explained() -> Iterator[None]:
    try:
        yield
    except dist.DistNetworkError as error:
        if "EADDRINUSE" not in str(error):
            raise
        raise EnvironmentLacking(
            f"MASTER_PORT={os.environ.get('MASTER_PORT')} is in use on this host, perhaps by another run; start with "
            "`torchrun --standalone`, which takes a free port, or set another MASTER_PORT (torchrun: --master-port)"
        ) from None


def shutdown_distributed() -> None:
    """Destroy the process group if there is one; safe to call twice."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def environment_rank() -> int:
    """The rank that torchrun's environment gives this process, 0 without. Raises RequestError for what is no rank."""
    return _number("RANK", 0) if "RANK" in os.environ else 0


def _ranks() -> tuple[int, int, int]:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    given = [name for name in names if name in os.environ]
    if not given:
        return 0, 1, 0
    size = _number("WORLD_SIZE", 1) if "WORLD_SIZE" in os.environ else 1
    wanted = names if size == 1 else (*names, "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in wanted if not os.environ.get(name)]
    if missing:
        raise RequestError(
            f"the environment sets {', '.join(given)} but not {', '.join(missing)}; start several processes with "
            "`torchrun --standalone --nproc-per-node=N -m train ...`, or unset them for one process"
        )
    rank, local_rank = _number("RANK", 0, size - 1), _number("LOCAL_RANK", 0)
    if size > 1:
        _number("MASTER_PORT", 1, (1 << 16) - 1)
    return rank, size, local_rank


def _number(name: str, least: int, most: int | None = None) -> int:
    """The value of an environment variable that must be a whole number."""
    value = os.environ[name]
    number = int(value) if re.fullmatch(r"[0-9]{1,9}", value) else -1
    if number < least or (most is not None and number > most):
        expected = f"of at least {least}" if most is None else f"from {least} to {most}"
        below = " (RANK counts from 0, below WORLD_SIZE)" if name == "RANK" else ""
        raise RequestError(
            f"the environment sets {name}={value[:40]!r}, expected a whole number {expected}{below}; start several "
            "processes with `torchrun --standalone --nproc-per-node=N -m train ...`, which sets it, or unset RANK, "
            "WORLD_SIZE and LOCAL_RANK for one process"
        )
    return number


def _device(name: DeviceName, local_rank: int) -> torch.device:
    available = torch.cuda.is_available()
    if name == "cpu" or (name == "auto" and not available):
        return torch.device("cpu")
    if not available:
        raise EnvironmentLacking("device=cuda, but torch finds no CUDA device; use device=cpu or a machine with a GPU")
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise EnvironmentLacking(
            f"local rank {local_rank} has no GPU of its own ({count} found); "
            f"start torchrun with --nproc-per-node={count}"
        )
    return torch.device("cuda", local_rank)


class _GatherRows(torch.autograd.Function):
    """all_gather forward; all_reduce, then this rank's slice, backward.

    Own, because the functions of torch.distributed that do it are deprecated, and because slicing without the reduce
    gives 1/W of the gradient (a common fault).
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, world: World) -> torch.Tensor:
        ctx.world, ctx.rows = world, x.shape[0]
        return _all_gather(x, world)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        total = grads[0].contiguous().clone()
        with COMMUNICATION.running():
            dist.all_reduce(total)
        start = ctx.world.rank * ctx.rows
        return total[start : start + ctx.rows], None


def gather_rows(x: torch.Tensor, world: World) -> torch.Tensor:
    """(B, ...) on every rank -> (W*B, ...) in rank order, differentiable (see the convention above).

    Every rank must bring the same shape: `agree_on_bags` checks that, `pad_bags` makes it so.
    """
    if world.size == 1:
        return x
    gathered = _GatherRows.apply(x, world)
    assert isinstance(gathered, torch.Tensor)
    return gathered


class _LogSumExpOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        highest = x.clone()
        with COMMUNICATION.running():
            dist.all_reduce(highest, op=dist.ReduceOp.MAX)
        total = (x - highest).exp()
        with COMMUNICATION.running():
            dist.all_reduce(total)
        result = highest + total.log()
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        part, result = ctx.saved_tensors
        total: torch.Tensor = grads[0].contiguous().clone()
        with COMMUNICATION.running():
            dist.all_reduce(total)
        share: torch.Tensor = (part - result).exp()
        return total * share


def logsumexp_over_ranks(x: torch.Tensor, world: World) -> torch.Tensor:
    """Elementwise log of the sum over ranks of exp(x), the same on all; differentiable (see the convention above)."""
    if world.size == 1:
        return x
    total = _LogSumExpOverRanks.apply(x)
    assert isinstance(total, torch.Tensor)
    return total


def gather_plain(x: torch.Tensor, world: World) -> torch.Tensor:
    """(B, ...) ids or masks -> (W*B, ...) in rank order, same dtype, no gradient."""
    if world.size == 1:
        return x
    if x.dtype == torch.bool:
        return _all_gather(x.to(torch.uint8), world).bool()
    return _all_gather(x.detach(), world)


def _all_gather(x: torch.Tensor, world: World) -> torch.Tensor:
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(world.size)]
    with COMMUNICATION.running():
        dist.all_gather(parts, x.contiguous())
    return torch.cat(parts)


def agree_on_bags(rows: int, candidates: int, world: World) -> int:
    """The widest bag (candidates per clip) over all ranks, at least 1; one small collective.

    Raises RequestError on every rank when the numbers of rows differ: an uneven gather would hang or mix rows.
    """
    if world.size == 1:
        return max(1, candidates)
    extremes = torch.tensor([rows, -rows, candidates], dtype=torch.int64, device=world.device)
    with COMMUNICATION.running():
        dist.all_reduce(extremes, op=dist.ReduceOp.MAX)
        most, negated_least, widest = (int(value) for value in extremes.tolist())
    if most != -negated_least:
        raise RequestError(
            f"ranks bring {-negated_least} to {most} clips to one step (rank {world.rank}: {rows}), expected the same "
            "number everywhere; choose a global batch that the number of ranks divides"
        )
    return max(1, widest)


def pad_bags(x: torch.Tensor, candidates: int, value: int = 0) -> torch.Tensor:
    """(B, K, ...) -> (B, candidates, ...), new slots hold `value` (0: False in a mask). K is at most that."""
    missing = candidates - x.shape[1]
    if missing == 0:
        return x
    return torch.cat([x, x.new_full((x.shape[0], missing, *x.shape[2:]), value)], dim=1)


def mean_over_ranks(x: torch.Tensor, world: World) -> torch.Tensor:
    """Mean of a floating tensor over the ranks, the same bits on all; no gradient."""
    if world.size == 1:
        return x.detach()
    total = x.detach().clone()
    with COMMUNICATION.running():
        dist.all_reduce(total)
    return total / world.size


def any_rank(flag: bool, world: World) -> bool:
    """Whether `flag` is True on any rank, on every rank; one small collective."""
    if world.size == 1:
        return flag
    value = torch.tensor([flag], dtype=torch.int32, device=world.device)
    with COMMUNICATION.running():
        dist.all_reduce(value, op=dist.ReduceOp.MAX)
        return bool(value.item())


def broadcast_number(number: float, world: World) -> float:
    """Rank 0's number, on every rank."""
    return float(_of_rank_0(number, torch.float64, world))


def broadcast_seed(seed: int, world: World) -> int:
    """Rank 0's seed, on every rank; all 63 bits of it."""
    return int(_of_rank_0(seed, torch.int64, world))


def _of_rank_0(number: float, dtype: torch.dtype, world: World) -> float:
    if world.size == 1:
        return number
    value = torch.tensor([number], dtype=dtype, device=world.device)
    with COMMUNICATION.running():
        dist.broadcast(value, src=0)
        return value.item()
