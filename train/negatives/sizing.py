"""How many embeddings of earlier batches fit beside a model: the K of a queue (He et al. 2020, section 3.2)."""

from __future__ import annotations

from typing import NamedTuple

from train.negatives.config import AnyNegativesConfig, BankConfig, memory_bytes

_ID_BYTES = 8
_SIDES = 2
# What a step keeps of an entry beside its numbers: flags, and what is summed over rows. Measured: 2 to 14.
_BESIDE = 16


class EntryBytes(NamedTuple):
    """Bytes for one video and one caption that are remembered.

    held: by the memory, ids included. compared: by a step, which lays them out for the loss: with a column for empty
    slots, and one for a bias.
    """

    dim: int
    itemsize: int
    held: int
    compared: int

    @property
    def total(self) -> int:
        return self.held + self.compared

    def rule(self, free: int, model: int) -> str:
        """How K comes about, in figures."""
        return (
            f"K = (free {free:,} - model {model:,}) / ({_SIDES} sides x ({self.dim} dimensions x {self.itemsize} bytes "
            f"+ {_ID_BYTES} of an id) held + {self.compared:,} while compared = {self.total:,} bytes)"
        )


def entry_bytes(dim: int, itemsize: int, *, biased: bool, copies: int = 1, logits: int = 0) -> EntryBytes:
    """dim, itemsize: of an embedding as it is remembered. biased: the loss adds a bias.

    copies: how often a step lays an entry out. logits: bytes that one of both sides adds to similarity matrices that
    are kept whole. Where they are cut into tiles, 1 and 0.
    """
    held = memory_bytes(1, dim, itemsize) + _SIDES * _ID_BYTES
    # Similarities are of float32 at least.
    row = (dim + 1 + biased) * max(itemsize, 4)
    return EntryBytes(dim, itemsize, held, _SIDES * (copies * row + _BESIDE) + logits)


def largest_queue(free: int, model: int, entry: EntryBytes) -> int:
    """K = (free - model) / (dim x bytes): as many entries as fit. model: bytes of everything else."""
    return max(0, free - model) // entry.total


class Remembered(NamedTuple):
    """Bytes of what a config remembers. held: from step to step. compared: by a step, beside them."""

    held: int
    compared: int


def remembered_bytes(config: AnyNegativesConfig | None, entry: EntryBytes, videos: int) -> Remembered:
    """videos: of a bank, which has an entry for each, and a flag; a step copies those that it draws."""
    if config is None:
        return Remembered(0, 0)
    if isinstance(config, BankConfig):
        held = memory_bytes(videos, entry.dim, entry.itemsize) + _SIDES * videos
        return Remembered(held, min(config.size, videos) * entry.total)
    return Remembered(config.size * entry.held, config.size * entry.compared)
