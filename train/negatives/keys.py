"""The key encoder of MoCo: a copy of both towers that follows them (He et al. 2020, equation 2)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch

from train.model import Embeddings, TwoTower


class KeyTowers:
    """The copy; it gets no gradient, is not optimised and runs without dropout.

    model: with its frozen parameters frozen already: these never differ from the copy's and are shared with it.
    momentum: m of key = m key + (1 - m) query.
    """

    def __init__(self, model: TwoTower, momentum: float) -> None:
        frozen: dict[int, Any] = {id(p): p for p in model.parameters() if not p.requires_grad}
        self._learning = [name for name, p in model.named_parameters() if p.requires_grad]
        self._towers = copy.deepcopy(model, memo=frozen).requires_grad_(False).eval()
        self._momentum = momentum

    @torch.no_grad()
    def __call__(self, *inputs: torch.Tensor | None) -> Embeddings:
        """Keys of a batch; `inputs` as of the model."""
        keys: Embeddings = self._towers(*inputs)
        return keys

    @torch.no_grad()
    def follow(self, model: TwoTower) -> None:
        """One step of the momentum update, after the model's own; buffers are copied."""
        for mine, theirs in self._learning_of(model):
            # lerp leaves what is equal as it is, to the bit.
            mine.lerp_(theirs, 1 - self._momentum)
        self._copy_buffers(model)

    def state_dict(self) -> dict[str, Any]:
        """What the model's own state does not have."""
        return {name: self._towers.get_parameter(name) for name in self._learning}

    @torch.no_grad()
    def load_state_dict(self, content: dict[str, Any], model: TwoTower) -> None:
        """model: with the weights and buffers of the same checkpoint."""
        for name in self._learning:
            self._towers.get_parameter(name).copy_(content[name])
        self._copy_buffers(model)

    def _learning_of(self, model: TwoTower) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for name in self._learning:
            yield self._towers.get_parameter(name), model.get_parameter(name)

    def _copy_buffers(self, model: TwoTower) -> None:
        for mine, theirs in zip(self._towers.buffers(), model.buffers(), strict=True):
            mine.copy_(theirs)
