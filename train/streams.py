"""One stream of random numbers for each rank and purpose, all derived from the run's seed."""

from __future__ import annotations

from enum import IntEnum

import torch

from train.permutation import mix_key


class Purpose(IntEnum):
    """What draws. A number is never given to another purpose: what a seed means would change.

    DROPOUT: of a rank from the run's first step on. RESUMED: the same after a resume at another world size, where no
    rank's own state is known.
    The weights of a new model are what `torch.manual_seed(seed)` gives, on all ranks. The order of samples, the
    candidates that a loss draws and a memory bank's negatives are pure functions of seed and step: no streams.
    """

    DROPOUT = 1
    RESUMED = 2


def stream_seed(seed: int, purpose: Purpose, rank: int = 0, step: int = 0) -> int:
    """A seed below 2^63 for torch's generators."""
    return mix_key(seed, int(purpose), rank, step) >> 1


def begin_stream(seed: int, purpose: Purpose, rank: int = 0, step: int = 0) -> None:
    """Torch's generators, of the CPU and of every GPU, begin that stream."""
    torch.manual_seed(stream_seed(seed, purpose, rank, step))
