"""The stores that a run trains on, by number, and the order of their batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shared.errors import RequestError
from shared.store import open_store
from train.checkpoint import differences
from train.config import FitConfig
from train.data import WindowData
from train.delivery.arrays import BatchShape
from train.model import TokenSpec
from train.order import BatchOrder, Mixture, Order, OrderConfig, SourceConfig, check_ranks
from train.order.draws import SOURCE
from train.order.lengths import Lengths, token_lengths
from train.permutation import mix_key

# No name that somebody gives a source can be this.
MAIN = "(main)"


@dataclass(frozen=True)
class Source:
    """What a config says of one source, nothing left open. where: the place of its keys, empty for the top level."""

    name: str
    where: str
    store: Path
    set: str
    stream: str | None
    split: str
    weight: float
    batch_size: int
    order: OrderConfig

    def open(self, config: FitConfig) -> WindowData:
        """Its windows. Raises as WindowData does."""
        reads = config.model.reads_embeddings
        store = open_store(self.store)
        return WindowData(store, self.set, self.split, stream=self.stream, config=config.data, embeddings=reads)


class Sources:
    """settings, datas: of each source, the main one first.

    offsets: what is added to a source's video numbers in `Batch.video_ids_B`, so that no two sources share one; all are
    below `videos`. Raises RequestError for sources whose rows or tokens one model cannot take.
    """

    def __init__(self, settings: Sequence[Source], datas: Sequence[WindowData]) -> None:
        self.settings, self.datas = tuple(settings), tuple(datas)
        counts = [len(data.manifest.video_ids) for data in datas]
        self.offsets = tuple(sum(counts[:number]) for number in range(len(counts)))
        self.videos = sum(counts)
        for source, data in zip(settings[1:], datas[1:], strict=True):
            _check_alike(settings[0], datas[0], source, data)

    @property
    def tokens(self) -> TokenSpec:
        """What a text tower must take: the tokens of all sources, in captions as long as the longest of them."""
        longest = max(data.tokens.max_tokens for data in self.datas)
        return replace(self.datas[0].tokens, max_tokens=longest)

    @property
    def shares(self) -> list[float]:
        """Each source's part of the steps."""
        total = sum(source.weight for source in self.settings)
        return [source.weight / total for source in self.settings]

    def shapes(self, order: BatchOrder, ranks: int) -> list[BatchShape]:
        """Every shape that one rank's part of a global batch may have."""
        return [
            self.datas[shape.source].shape(
                shape.samples // ranks, self.settings[shape.source].order.candidates, shape.rows, shape.tokens
            )
            for shape in order.shapes()
        ]

    def video_names(self, video_ids: list[int]) -> list[str]:
        """The ids that people gave, for the numbers in `Batch.video_ids_B`."""
        sources = (np.searchsorted(self.offsets, video_ids, side="right") - 1).tolist()
        return [
            self.datas[source].manifest.video_ids[number - self.offsets[source]]
            for source, number in zip(sources, video_ids, strict=True)
        ]


def open_sources(config: FitConfig, main: WindowData) -> Sources:
    """The main data and what `config.mixture` adds to it. Raises as WindowData does, and RequestError."""
    first, *others = _settings(config)
    return Sources([first, *others], [main, *(source.open(config) for source in others)])


def build_order(sources: Sources, config: FitConfig, world_size: int) -> BatchOrder:
    """The order of the run's batches. Raises RequestError where none can be filled, or the ranks cannot share them."""
    orders = []
    for number, (source, data) in enumerate(zip(sources.settings, sources.datas, strict=True)):
        check_ranks(source.order, source.batch_size, world_size, source.where)
        seed = mix_key(config.seed, SOURCE, number) if number else config.seed
        orders.append(order_of(data, source.order, source.batch_size, seed, source.where))
    if config.mixture is None:
        return orders[0]
    names, weights = zip(*((source.name, source.weight) for source in sources.settings), strict=True)
    return Mixture(orders, names, weights, config.mixture.choice, config.seed)


def order_of(data: WindowData, config: OrderConfig, batch_size: int, seed: int, where: str = "") -> Order:
    """The order of one split's windows. where: the place of its keys, for messages."""
    return Order(
        data.windows.video_W,
        data.bag_W,
        _lengths(data, config),
        batch_size=batch_size,
        seed=seed,
        config=config,
        identity=data.identity,
        where=where,
    )


def _lengths(data: WindowData, config: OrderConfig) -> Lengths:
    if config.buckets is None or config.buckets.by == "rows":
        return Lengths(data.windows.rows_W, data.max_rows)
    return token_lengths(data.bag_W, data.windows.candidates, data.manifest.token_offsets, data.tokens.max_tokens)


def _settings(config: FitConfig) -> list[Source]:
    """The main source, then the others by name, so that their order in a file decides nothing."""
    mixture = config.mixture
    main = SourceConfig(
        store=config.store,
        set=config.set,
        stream=config.stream,
        train_split=config.train_split,
        weight=mixture.weight if mixture else 1.0,
    )
    others = sorted(mixture.sources.items()) if mixture else []
    return [
        Source(
            name=name,
            where="" if name == MAIN else f"mixture.sources.{name}.",
            store=one.store,
            set=one.set,
            stream=one.stream,
            split=one.train_split,
            weight=one.weight,
            batch_size=one.batch_size or config.batch_size,
            order=one.order or config.order,
        )
        for name, one in [(MAIN, main), *others]
    ]


def _check_alike(first: Source, main: WindowData, source: Source, data: WindowData) -> None:
    changed = differences(_inputs(main), _inputs(data))
    if changed:
        raise RequestError(
            f"{source.store} (mixture.sources.{source.name}) has other rows or tokens than {first.store}:\n  "
            + "\n  ".join(changed)
            + "\none model takes both only where rows have one size and captions are of one tokenizer and encoder: "
            "make one of the sets again, or leave the source out"
        )


def _inputs(data: WindowData) -> dict[str, Any]:
    # Where captions are cut changes no id.
    tokenizer = {key: value for key, value in data.manifest.info.tokenizer.items() if key != "max_length"}
    return {"row size": list(data.input_dims), "tokenizer": tokenizer, "embeddings": data.embedding_kind}
