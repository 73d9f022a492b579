"""What the backends that read in this process have in common: the wanted frames by the packet table, and one error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from preprocess.decode.grid import Needs
from preprocess.decode.media_probe import Probe


class FastFailedError(Exception):
    """The backend cannot go on, or disagrees with the packets; everything before has been yielded."""


def needed_frames(probe: Probe, needs: Sequence[Needs]) -> tuple[NDArray[np.int64], list[float]]:
    """(numbers of the frames that are asked for, in order of showing; seconds at which each of them is shown).

    Only for a table that can be trusted.
    """
    table = probe.table
    times = [*probe.seconds(table.pts_T).tolist(), probe.info.duration]
    keys = table.key_T.tolist()
    wanted = [
        index
        for index, key in enumerate(keys)
        if index == 0 or any(one.needs(times[index], times[index + 1], key) for one in needs)
    ]
    return np.array(wanted, dtype=np.int64), [times[index] for index in wanted]


def first_line(error: Exception) -> str:
    """One line for people of what a library says."""
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__
