"""What a run is made of, built from its config: data, order, model, optimizer, negatives, teacher, and the step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from shared.store import open_store
from train.config import FitConfig
from train.data import WindowData
from train.distributed import World
from train.losses import Loss
from train.model import TwoTower, build_model
from train.negatives import Negatives, build_negatives
from train.optim import build_optimizer
from train.order import BatchOrder
from train.precision import check_precision
from train.schedule import learning_rate_factor
from train.sharded_towers import ShardedTowers
from train.sharding import check_offload, shards_towers
from train.sources import Sources, build_order, open_sources
from train.step import TrainStep
from train.teacher import TeacherTowers, open_teacher
from train.towers import compile_towers, synchronise_norms


@dataclass(frozen=True)
class Parts:
    """data: of the main source. total: steps of the run. negatives, teacher: None where the config names none.
    sharded: None where each rank has the whole model."""

    config: FitConfig
    world: World
    data: WindowData
    sources: Sources
    order: BatchOrder
    total: int
    model: TwoTower
    optimizer: torch.optim.Optimizer
    negatives: Negatives | None
    teacher: TeacherTowers | None
    sharded: ShardedTowers | None

    def identity(self) -> dict[str, Any]:
        """What decides the weights, beside the data; a teacher counts by its content, wherever it lies."""
        teacher = None if self.teacher is None else self.teacher.fingerprint
        return self.config.identity() | ({} if teacher is None else {"teacher": teacher})

    def step(self, say: Callable[[str], None]) -> TrainStep:
        """One optimisation step over these parts. say: tells people what it has to change, on rank 0."""
        config = self.config
        return TrainStep(
            self.model,
            self.optimizer,
            Loss(config.loss, config.seed),
            self.world,
            factor=lambda index: learning_rate_factor(index, self.total, config.schedule),
            clip=config.optim.clip,
            total_steps=self.total,
            negatives=self.negatives,
            teacher=self.teacher,
            precision=config.precision,
            ddp=config.ddp,
            sharded=self.sharded,
            micro_batches=config.micro_batches,
            say=say,
        )


def build_parts(config: FitConfig, world: World, ranks: int | None = None) -> Parts:
    """All parts with fresh weights, on the world's device.

    ranks: that share a batch; None for those of `world`. Raises what its parts raise, before anything is trained.
    """
    check_precision(config.precision, world.device)
    check_offload(config.offload, world)
    store = open_store(config.store)
    reads = config.model.reads_embeddings
    data = WindowData(store, config.set, config.train_split, stream=config.stream, config=config.data, embeddings=reads)
    sources = open_sources(config, data)
    order = build_order(sources, config, ranks or world.size)
    torch.manual_seed(config.seed)
    model = build_model(config.model, input_dim=data.input_dims, tokens=sources.tokens).to(world.device)
    if config.sync_batch_norm:
        model = synchronise_norms(model, world)
    sharded = _sharded(model, config, world)
    optimizer = build_optimizer(model, config.optim, config.batch_size, sharded=config.shard == 1 and world.size > 1)
    teacher = open_teacher(config.loss, data, sources.tokens, world)
    negatives = build_negatives(config.negatives, model, world, videos=sources.videos, seed=config.seed)
    if config.compile:
        compile_towers(model)
    total = config.total_steps(order)
    return Parts(config, world, data, sources, order, total, model, optimizer, negatives, teacher, sharded)


def _sharded(model: TwoTower, config: FitConfig, world: World) -> ShardedTowers | None:
    if not shards_towers(config.shard, world.size):
        return None
    varies = config.ddp.find_unused_parameters is True
    return ShardedTowers(model, world, config.shard, offload=config.offload, varies=varies)
