"""Negatives beyond the batch: what is remembered of earlier batches, and by which towers. A new kind is a config, a
memory and a line in MEMORIES."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from train.distributed import World, gather_plain
from train.losses import Beyond
from train.model import Embeddings, TwoTower
from train.negatives.bank import Bank
from train.negatives.config import AnyNegativesConfig, BankConfig, MocoConfig, NegativesConfig, QueueConfig
from train.negatives.fresh import Fresh, Memory
from train.negatives.keys import KeyTowers
from train.negatives.queue import Queue

# The loss of a batch with everything bound but (video_BD, text_NKD, beyond).
BoundLoss = Callable[[torch.Tensor, torch.Tensor, Beyond], torch.Tensor]


class Negatives:
    """What a run remembers, and the loss with it. keys: the key towers, or None where the model's own embeddings are
    remembered."""

    def __init__(self, memory: Memory, keys: KeyTowers | None, world: World) -> None:
        self._memory, self._keys, self._world = memory, keys, world

    def loss(
        self,
        loss: BoundLoss,
        inputs: tuple[torch.Tensor | None, ...],
        embeddings: Embeddings,
        ids_N: torch.Tensor,
        step: int,
    ) -> tuple[torch.Tensor, Fresh]:
        """This rank's scalar, and what is to be remembered after the step.

        inputs: of the model, this rank's. embeddings: own videos and everybody's texts. ids_N: of the global batch.

        With key towers, every similarity is that of a query with a key of the other modality. Of clip videos v and
        texts t and their keys v', t' (He et al. 2020, section 3.1, for two modalities):

            L = 1/2 ( l(v, t'; remembered t') + l(v', t; remembered v') )

        where l is the configured loss of videos and texts and of further negatives: positives and negatives within the
        batch are of queries and keys too, keys are constants, and no key meets a key. With keys that are the queries
        and nothing remembered, L is the plain loss.
        """
        beyond = self._memory.draw(step)
        video_BD, text_NKD = embeddings.video_BD, embeddings.text_BKD
        if self._keys is None:
            return loss(video_BD, text_NKD, beyond), self._fresh(video_BD, text_NKD, embeddings, ids_N)
        keys = self._keys(*inputs)
        text_key_NKD = gather_plain(keys.text_BKD, self._world)
        videos_ask = loss(video_BD, text_key_NKD, beyond.texts_only())
        texts_ask = loss(keys.video_BD, text_NKD, beyond.videos_only())
        return (videos_ask + texts_ask) / 2, self._fresh(keys.video_BD, text_key_NKD, embeddings, ids_N)

    def after_step(self, fresh: Fresh, model: TwoTower) -> None:
        """Remember the batch, and let the key towers follow the weights that the step has changed."""
        self._memory.push(fresh)
        if self._keys is not None:
            self._keys.follow(model)

    def state_dict(self) -> dict[str, Any]:
        return {"memory": self._memory.state_dict(), "keys": None if self._keys is None else self._keys.state_dict()}

    def load_state_dict(self, content: dict[str, Any], model: TwoTower) -> None:
        """model: as loaded from the same checkpoint."""
        self._memory.load_state_dict(content["memory"])
        if self._keys is not None:
            self._keys.load_state_dict(content["keys"], model)

    def _fresh(
        self, video_BD: torch.Tensor, text_NKD: torch.Tensor, embeddings: Embeddings, ids_N: torch.Tensor
    ) -> Fresh:
        video_ND = gather_plain(video_BD.detach(), self._world)
        return Fresh(video_ND, text_NKD.detach(), embeddings.text_mask_BK, ids_N)


def build_negatives(
    config: AnyNegativesConfig | None, model: TwoTower, world: World, *, videos: int, seed: int
) -> Negatives | None:
    """What `config` names, empty; None for negatives of the batch alone.

    model: on its device, with frozen parameters frozen. videos: all ids of a batch are below. seed: of a bank's draws.
    Raises RequestError for what needs more memory than the configured limit.
    """
    if config is None:
        return None
    # Like the temperature, which is whole and on the device of the embeddings wherever the towers' parameters are.
    place = _Place(model, model.temperature.log_value.detach().new_zeros(model.dim), videos, seed)
    rows = videos if isinstance(config, BankConfig) else config.size
    config.check_bytes(rows, model.dim, place.like_D.element_size())
    keys = KeyTowers(model, config.momentum) if isinstance(config, MocoConfig) else None
    return Negatives(MEMORIES[config.name](config, place), keys, world)


class _Place(NamedTuple):
    """What a memory is made for. like_D: a vector as it is remembered."""

    model: TwoTower
    like_D: torch.Tensor
    videos: int
    seed: int


def _queue(config: QueueConfig | MocoConfig, place: _Place) -> Memory:
    return Queue(config.size, place.like_D)


def _bank(config: BankConfig, place: _Place) -> Memory:
    return Bank(
        place.videos,
        place.like_D,
        size=config.size,
        momentum=config.momentum,
        normalise=place.model.normalise,
        seed=place.seed,
    )


MEMORIES: dict[str, Callable[..., Memory]] = {"queue": _queue, "moco": _queue, "bank": _bank}

__all__ = ["MEMORIES", "BankConfig", "MocoConfig", "Negatives", "NegativesConfig", "QueueConfig", "build_negatives"]
