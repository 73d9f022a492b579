"""Several stores in one run: every batch is of one of them, each with its own batch size and its own epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from shared.config import Config
from shared.schema import Name
from train.order.base import BatchOrder, Shape
from train.order.config import OrderConfig
from train.order.order import Order
from train.order.selection import Selection
from train.order.turns import BLOCK, CHOICES, TurnTaking

# Far beyond any use; counts of turns stay exact in float64.
Weight = Annotated[float, Field(ge=1e-6, le=1e6)]


class SourceConfig(Config):
    """One more store to train on.

    store, set, stream, train_split: as at the top level. weight: its share of the steps, beside the others' weights.
    batch_size, order: its own, null for those of the top level.
    """

    store: Path
    set: str = "default"
    stream: str | None = None
    train_split: str = "train"
    weight: Weight = 1.0
    batch_size: int | None = Field(default=None, ge=1)
    order: OrderConfig | None = None


class MixtureConfig(Config):
    """What is trained on beside the store of the top level, which is the first source; validation stays with that one.

    Every step's batch is of one source. Each source goes through epochs of its own; an epoch of the run is as many
    steps as the first source needs, by its share of the steps, for one of its own. All sources need rows of one size
    and one tokenizer; captions may be cut at different lengths.

    sources: the others, by names of your own. weight: the first source's share of the steps, beside the others'
    weights. choice: `alternate` takes turns in a fixed pattern, as close to the weights as can be at every step;
    `sampled` draws each step's source.
    """

    sources: dict[Name, SourceConfig] = Field(min_length=1, max_length=64)
    weight: Weight = 1.0
    choice: Literal["alternate", "sampled"] = "alternate"


class Mixture(BatchOrder):
    """Batches of several orders, in turns. The first order is source 0, the others follow by name.

    names, weights: one for each order; names go into the identity.
    """

    def __init__(self, orders: Sequence[Order], names: Sequence[str], weights: Sequence[float], choice: str, seed: int):
        self._orders = tuple(orders)
        self._turns: TurnTaking = CHOICES[choice](weights, seed)
        self._first_share = weights[0] / sum(weights)
        self.left_out = self._orders[0].left_out
        self.identity = {
            "choice": choice,
            "sources": {
                name: {"weight": weight, **order.identity}
                for name, weight, order in zip(names, weights, orders, strict=True)
            },
        }

    def batch(self, step: int) -> Selection:
        """Global batch number `step`: the next one of the source whose turn it is."""
        turns = self._turns.block(step // BLOCK)
        source, nth = (int(values_N[step % BLOCK]) for values_N in turns)
        return replace(self._orders[source].batch(nth), source=source)

    def place(self, step: int) -> tuple[int, int]:
        """The epoch that `step` is in, and its number within it."""
        epoch = self._orders[0].place(int(step * self._first_share))[0]
        while self.steps_before(epoch) > step:
            epoch -= 1
        while self.steps_before(epoch + 1) <= step:
            epoch += 1
        return epoch, step - self.steps_before(epoch)

    def steps_before(self, epoch: int) -> int:
        """Steps of all epochs before `epoch`."""
        return round(self._orders[0].steps_before(epoch) / self._first_share)

    def shapes(self) -> list[Shape]:
        """Every shape that a batch may have, source after source."""
        return [shape._replace(source=source) for source, order in enumerate(self._orders) for shape in order.shapes()]
