"""What every order of batches can say, of one store or of several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from shared.fingerprint import fingerprint
from train.order.selection import Selection


class Shape(NamedTuple):
    """A shape that global batches have: the source, how many samples, T and L (None for those of the data)."""

    source: int
    samples: int
    rows: int | None
    tokens: int | None


class BatchOrder(ABC):
    """The global batches of a run, each by its number alone; safe to ask from several threads.

    Steps and epochs are counted from 0. identity: plain values that the sequence depends on, and nothing else does.
    left_out: samples that the first epoch does not see, of the first source.
    """

    identity: dict[str, Any]
    left_out: int

    @abstractmethod
    def batch(self, step: int) -> Selection:
        """Global batch number `step`, counted through all epochs."""

    @abstractmethod
    def place(self, step: int) -> tuple[int, int]:
        """The epoch that `step` is in, and its number within it."""

    @abstractmethod
    def steps_before(self, epoch: int) -> int:
        """Steps of all epochs before `epoch`: its first step's number."""

    @abstractmethod
    def shapes(self) -> list[Shape]:
        """Every shape that a batch may have."""

    @property
    def largest(self) -> int:
        """The most samples in a global batch."""
        return max(shape.samples for shape in self.shapes())

    def epochs_at(self, step: int) -> float:
        """Epochs that are done before `step`, with the part of one that has begun."""
        epoch, within = self.place(step)
        return epoch + within / (self.steps_before(epoch + 1) - self.steps_before(epoch))

    def state(self, step: int) -> dict[str, Any]:
        """What a checkpoint keeps: the next step, and what the sequence depends on."""
        return {"step": step, "fingerprint": fingerprint(self.identity), "identity": self.identity}
