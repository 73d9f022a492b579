"""When the towers do not fit: more micro-batches, the same number on all ranks, and before anything is half done."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import nn

from shared.errors import RunFailed
from train.accumulation import parts, training_norms
from train.distributed import World, any_rank
from train.towers import Inputs, Towers


class MicroBatches:
    """number: of parts that a rank's clips are cut into; it only grows, and is the same on all ranks.

    say: tells people, on rank 0.
    """

    def __init__(self, number: int, model: nn.Module, world: World, say: Callable[[str], None]) -> None:
        self.number = number
        self._model, self._world, self._say = model, world, say

    def double(self, clips: int) -> None:
        """Twice as many, after some rank ran out of memory with `clips` on each; all ranks call it.

        Raises RunFailed where there can be no more, or where a batch norm would not see the same batch in them.
        """
        norms = training_norms(self._model)
        if self.number >= clips or norms:
            raise RunFailed(f"out of memory with {clips} clips a rank in {self.number} part(s), {_no_more(norms)}")
        self.number = min(2 * self.number, clips)
        self._say(
            f"out of memory: the step is done again in micro_batches={self.number}, the same step, and so are all that "
            f"follow; to begin so, set micro_batches={self.number}"
        )
        if self._world.device.type == "cuda":
            torch.cuda.empty_cache()

    def failed_half_way(self) -> RunFailed:
        """What to raise where the update itself ran out of memory, which cannot begin again."""
        return RunFailed(
            f"rank {self._world.rank} ran out of memory in the optimizer's update, and some weights may have changed; "
            f"run the same command again with micro_batches={2 * self.number}: it goes on from the last checkpoint"
        )

    def failed_in_collective(self, clips: int) -> RunFailed:
        """What to raise on the rank that ran out of memory where other ranks wait for it, so that none can go on."""
        return RunFailed(
            f"rank {self._world.rank} ran out of memory within a step of {clips} clips a rank in micro_batches="
            f"{self.number}, in the loss or behind it, where the other ranks wait for it; run the same command again "
            f"with micro_batches={min(2 * self.number, clips)}, or with a smaller loss.tile, batch_size or negatives"
        )


class Rehearsal:
    """Whether the towers fit, found before a step of several ranks, in which no rank could begin again by itself.

    A shape that is larger than all before goes through the towers forward and backward, on every rank, without a
    collective, and leaves neither a gradient nor a drawn number behind. The first one also joins the ranks' towers.
    unused: names of parameters that learn but that no embedding depends on, as the first shape showed.
    """

    def __init__(self, towers: Towers, world: World) -> None:
        self._towers, self._world = towers, world
        self._proven: list[tuple[int, ...]] = []
        self.unused: list[str] = []

    def until_it_fits(self, inputs: Inputs, micro_batches: MicroBatches) -> None:
        """All ranks call it before each step, and have the same number of micro-batches after it."""
        clips = len(inputs.video_BTD)
        while True:
            part = inputs.rows(parts(clips, micro_batches.number)[0])
            shape = (*part.video_BTD.shape, *part.tokens_BKL.shape)
            if not any_rank(not self._is_proven(shape), self._world):
                return
            unused = self._unused(part)
            if not any_rank(unused is None, self._world):
                self._join(unused or [])
                self._proven.append(shape)
                return
            if self._towers.static_graph:
                raise RunFailed(
                    f"out of memory with {clips} clips a rank, which ddp.static_graph=true allows no micro-batches of; "
                    "set it to false and run the same command again, or lower batch_size"
                )
            micro_batches.double(clips)

    def _is_proven(self, shape: tuple[int, ...]) -> bool:
        return any(all(a <= b for a, b in zip(shape, seen, strict=True)) for seen in self._proven)

    def _unused(self, part: Inputs) -> list[str] | None:
        """What the towers do not use, or None where they do not fit."""
        try:
            return self._towers.rehearse(part)
        except torch.OutOfMemoryError as error:
            tell_memory(error, self._world)
            return None

    def _join(self, unused: list[str]) -> None:
        """The first shape shows what DDP has to know. Which parameters are used is of the model, not of the rank."""
        if not self._proven and self._world.size > 1:
            self._towers.join(unused)
            self.unused = unused


def tell_memory(error: torch.OutOfMemoryError, world: World) -> None:
    """What the allocator says, and CUDA's table of what is held, on stderr of the rank that ran out."""
    print(f"rank {world.rank}: {error}", file=sys.stderr, flush=True)
    if world.device.type == "cuda":
        print(torch.cuda.memory_summary(world.device), file=sys.stderr, flush=True)


def _no_more(norms: list[str]) -> str:
    if norms:
        return (
            f"which cannot be cut further: batch norm {norms[0]} takes its statistics from the batch; freeze it "
            f"(optim.freeze=[{norms[0]}.*]) or lower batch_size"
        )
    return "which is one clip at a time; lower data.max_rows, order.candidates, loss.tile or model.dim"
