"""Signs that a run is not well, told once each time that they begin."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from train.distributed import World, gather_plain
from train.losses.likeness import mean_cosines
from train.step import StepResult
from train.timing import Interval

# Lines of the log over which a loss, or a likeness, counts as staying where it is.
LINES = 10
# A rank's loss against the mean of the others', and the least difference that counts: losses near 0 differ by chance.
LOSS_RATIO, LOSS_MARGIN = 1.3, 0.05
COLLAPSED = 0.95
# Of the mean of the last validations: up and down by more than this, three times in a row.
SWING = 0.05
SWINGS = 3
# Shares of the time are judged over at least so many seconds.
TIME_S = 10.0
# By how much of the time a rank may wait more than the others, and how much of it all may wait for data.
UNEVEN, STARVED = 0.2, 0.5


class Sign(NamedTuple):
    """kind: `no_gradient`, `rank_loss`, `collapse`, `swing`, `data_wait`, `slow_data` or `slow_rank`.

    message: with what to do.
    """

    kind: str
    message: str


class Health:
    """Looks at every line of the log and at every validation. What is told depends on no time, but for the last three
    kinds, and goes on in a resumed run as in one that was never stopped.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._losses: deque[list[float]] = deque(maxlen=LINES)
        self._likeness: deque[float] = deque(maxlen=LINES)
        self._validations: deque[float] = deque(maxlen=SWINGS + 1)
        self._spent_W3 = torch.zeros(world.size, 3, dtype=torch.float64)
        self._active: set[str] = set()

    def at_log(self, result: StepResult, interval: Interval) -> tuple[dict[str, Any], list[Sign]]:
        """Numbers for the log, and what begins to be wrong; every rank calls it and gets the same. One small gather.

        `data_wait`, `communicating`, `computing`: shares of the time, means over the ranks. `cosine_videos`,
        `cosine_texts`: mean cosine between two clips of the batch. `rank_losses`, of more than one rank, in rank order.
        """
        times = [interval.elapsed_s, interval.data_s, interval.communicating_s]
        pointing = result.directions_2D.double().flatten()
        own = torch.cat([torch.tensor([result.own_loss, *times], dtype=torch.float64).to(pointing.device), pointing])
        all_WF = gather_plain(own[None], self._world).cpu()
        videos, texts = mean_cosines(all_WF[:, 4:].sum(dim=0).view(2, -1))
        losses, time_W3 = all_WF[:, 0].tolist(), all_WF[:, 1:4]
        self._losses.append(losses)
        self._likeness.append(max(videos, texts))
        numbers: dict[str, Any] = shares(time_W3) | {"cosine_videos": videos, "cosine_texts": texts}
        if len(losses) > 1:
            numbers["rank_losses"] = losses
        return numbers, [
            *self._judge(no_gradient(result), "no_gradient"),
            *self._judge(rank_loss(self._losses), "rank_loss"),
            *self._judge(collapse(self._likeness), "collapse"),
            *self._judge_times(time_W3),
        ]

    def at_validation(self, value: float) -> list[Sign]:
        """value: the metric that decides which checkpoint is best."""
        self._validations.append(value)
        return self._judge(swing(self._validations), "swing")

    def state_dict(self) -> dict[str, Any]:
        """Without anything that was measured in seconds."""
        return {
            "losses": [list(row) for row in self._losses],
            "likeness": list(self._likeness),
            "validations": list(self._validations),
            "active": sorted(self._active - _TIMED.keys()),
        }

    def load_state_dict(self, content: dict[str, Any]) -> None:
        # Another number of ranks has other losses.
        self._losses.extend(row for row in content["losses"] if len(row) == self._world.size)
        self._likeness.extend(content["likeness"])
        self._validations.extend(content["validations"])
        self._active = set(content["active"])

    def _judge(self, message: str | None, kind: str) -> list[Sign]:
        """A sign where something begins; nothing while it lasts."""
        if message is None:
            self._active.discard(kind)
            return []
        begins = kind not in self._active
        self._active.add(kind)
        return [Sign(kind, message)] if begins else []

    def _judge_times(self, time_W3: torch.Tensor) -> list[Sign]:
        self._spent_W3 += time_W3
        if float(self._spent_W3[0, 0]) < TIME_S:
            return []
        share_W3 = self._spent_W3 / self._spent_W3[:, :1]
        self._spent_W3 = torch.zeros_like(self._spent_W3)
        data, communicating = share_W3[:, 1].tolist(), share_W3[:, 2].tolist()
        return [sign for kind, look in _TIMED.items() for sign in self._judge(look(data, communicating), kind)]


def shares(time_W3: torch.Tensor) -> dict[str, float]:
    """Means over ranks of elapsed, data and communicating seconds as shares of the time; what is left is computing."""
    _, data, communicating = (time_W3 / time_W3[:, :1]).mean(dim=0).tolist()
    # Rounding, and a collective that ended within another interval, may leave less than nothing.
    return {"data_wait": data, "communicating": communicating, "computing": max(0.0, 1 - data - communicating)}


def no_gradient(result: StepResult) -> str | None:
    """Whether the step changed nothing, however good its loss looks."""
    if result.grad_norm != 0:
        return None
    return (
        f"the gradient is exactly 0, at a loss of {result.loss:.4g}: nothing is learned from such a batch. It may hold "
        "no caption of another video (look at batch_size and at the split), or a tower gives the same for all clips"
    )


def rank_loss(losses: deque[list[float]]) -> str | None:
    """Whether one rank's loss stays 30 % over the mean of the others', over the last lines of the log."""
    if len(losses) < LINES or len(losses[0]) < 2:
        return None
    means = [sum(column) / len(column) for column in zip(*losses, strict=True)]
    rank, highest = max(enumerate(means), key=lambda pair: pair[1])
    others = (sum(means) - highest) / (len(means) - 1)
    if highest <= LOSS_RATIO * others or highest - others <= LOSS_MARGIN:
        return None
    return (
        f"the loss of rank {rank} stays at {highest:.4g}, the others' at {others:.4g} on average, over {LINES} lines "
        "of the log; expected about the same: look at what that rank alone reads or computes (its disk, its GPU, its "
        "copy of the store)"
    )


def collapse(likeness: deque[float]) -> str | None:
    """Whether different clips' embeddings stay nearly the same."""
    if len(likeness) < LINES or min(likeness) <= COLLAPSED:
        return None
    return (
        f"the embeddings of different clips have a mean cosine of {likeness[-1]:.3f}, over {COLLAPSED} for {LINES} "
        "lines of the log; expected it to fall towards 0: the model tells nothing apart; lower optim.lr, raise "
        "batch_size, or lower model.temperature.value"
    )


def swing(validations: deque[float]) -> str | None:
    """Whether the metric goes up and down, and by how much each time."""
    if len(validations) <= SWINGS:
        return None
    steps = [after - before for before, after in pairwise(validations)]
    mean = sum(validations) / len(validations)
    alternate = all(first * second < 0 for first, second in pairwise(steps))
    if not alternate or min(map(abs, steps)) <= SWING * mean:
        return None
    values = ", ".join(f"{value:.4g}" for value in validations)
    return (
        f"validation goes up and down by more than {SWING:.0%} ({values}); expected steps in one direction: raise "
        "model.temperature.value or its minimum, lower optim.lr, or validate on more windows"
    )


def starved(data: list[float], communicating: list[float]) -> str | None:
    """Whether all ranks wait for data."""
    del communicating
    if min(data) <= STARVED:
        return None
    return (
        f"{min(data):.0%} of the time is spent waiting for data, expected next to none: set data.workers as "
        "`train plan` advises, or put the store on a faster disk"
    )


def slow_data(data: list[float], communicating: list[float]) -> str | None:
    """Whether one rank waits for its data, and all others for that rank."""
    del communicating
    rank, share, others = _apart(data)
    if share - others <= UNEVEN:
        return None
    return (
        f"rank {rank} waits for data {share:.0%} of the time, the others {others:.0%}, and then wait for it: look at "
        "the disk, the page cache and the free cores of its host"
    )


def slow_rank(data: list[float], communicating: list[float]) -> str | None:
    """Whether the others wait in collectives for a rank that has its data."""
    rank, negated, others = _apart([-share for share in communicating])
    if negated - others <= UNEVEN or data[rank] - min(data) > UNEVEN:
        return None
    return (
        f"the others wait for rank {rank}: they spend {-others:.0%} of the time in collectives, it {-negated:.0%}; "
        "expected about the same: look for other work on its host, or a slower device"
    )


def _apart(values: list[float]) -> tuple[int, float, float]:
    """The rank with the largest value, that value, and the mean of the others' (its own where there are none)."""
    rank, highest = max(enumerate(values), key=lambda pair: pair[1])
    others = (sum(values) - highest) / (len(values) - 1) if len(values) > 1 else highest
    return rank, highest, others


_TIMED: dict[str, Callable[[list[float], list[float]], str | None]] = {
    "data_wait": starved,
    "slow_data": slow_data,
    "slow_rank": slow_rank,
}
