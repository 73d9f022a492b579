"""A step in several micro-batches, exactly: as Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under
Memory Limited Setup", section 3.2, with a temperature and a bias beside the embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Protocol

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from shared.errors import RequestError
from train.checkpoint import random_state, set_random_state
from train.model import Embeddings
from train.towers import Inputs, Towers


class Made(Protocol):
    """This rank's embeddings, to be compared once, and the way of their gradients into the towers."""

    own: Embeddings

    def finish(self) -> None:
        """After the backward of the loss: every parameter has its gradient."""
        ...


class Whole:
    """All clips at once, with their graph: the backward of the loss is all there is to do."""

    def __init__(self, towers: Towers, inputs: Inputs) -> None:
        self.own = towers(inputs)

    def finish(self) -> None:
        pass


class Cached:
    """Clips in `micro_batches` parts. `own` is what the towers say of them, as leaves, of which the loss is computed
    once; `finish` runs the towers again, part by part, with the same dropout, and hands them the leaves' gradients.

    So memory is that of one part's graph, and every gradient is that of the whole: the temperature's and the bias's,
    too, which the loss touches once. Ranks average once, in the last part.
    """

    def __init__(self, towers: Towers, inputs: Inputs, micro_batches: int) -> None:
        self._towers = towers
        self._parts = [inputs.rows(rows) for rows in parts(len(inputs.video_BTD), micro_batches)]
        self._states: list[torch.Tensor] = []
        said = [self._first(part) for part in self._parts]
        self.own = Embeddings(
            _leaf(torch.cat([one.video_BD for one in said])),
            _leaf(torch.cat([one.text_BKD for one in said])),
            torch.cat([one.text_mask_BK for one in said]),
            _leaf(said[0].temperature),
            None if said[0].bias is None else _leaf(said[0].bias),
        )

    def finish(self) -> None:
        begin, last = 0, len(self._parts) - 1
        for number, (part, state) in enumerate(zip(self._parts, self._states, strict=True)):
            rows = slice(begin, begin + len(part.video_BTD))
            begin = rows.stop
            set_random_state(state, self._towers.device)
            with nullcontext() if number == last else self._towers.no_sync():
                _hand_over(self._towers(part), self._gradients(rows, number == last))

    def _first(self, part: Inputs) -> Embeddings:
        self._states.append(random_state(self._towers.device))
        return self._towers.constants(part)

    def _gradients(self, rows: slice, is_last: bool) -> list[torch.Tensor | None]:
        """Of one part's video, text, temperature and bias. Every part uses the same parameters, as DDP may want it, but
        what all clips share is counted in the last part only."""
        own = self.own
        shared = (_gradient(x) if x is None or is_last else torch.zeros_like(x) for x in (own.temperature, own.bias))
        video_BD, text_BKD = _gradient(own.video_BD), _gradient(own.text_BKD)
        assert video_BD is not None
        assert text_BKD is not None
        return [video_BD[rows], text_BKD[rows], *shared]


def embed(towers: Towers, inputs: Inputs, micro_batches: int) -> Made:
    """micro_batches: at most so many, and at least a clip in each."""
    return Whole(towers, inputs) if micro_batches == 1 else Cached(towers, inputs, micro_batches)


def parts(rows: int, micro_batches: int) -> list[slice]:
    """Contiguous parts of `rows`, the first ones larger by one where they are not equal; none is empty."""
    micro_batches = min(rows, micro_batches)
    size, larger = divmod(rows, micro_batches)
    ends = [number * size + min(number, larger) for number in range(micro_batches + 1)]
    return [slice(begin, end) for begin, end in pairwise(ends)]


def hold_frozen_norms(model: nn.Module) -> None:
    """After `model.train()`: batch norms all of whose weights are frozen are frozen in their statistics, too."""
    for module in model.modules():
        weights = list(module.parameters()) if isinstance(module, _BatchNorm) else []
        if weights and not any(weight.requires_grad for weight in weights):
            module.eval()


def training_norms(model: nn.Module) -> list[str]:
    """Names of the batch norms that take their statistics from the batch, once `model.train()` was called."""
    return [name for name, module in model.named_modules() if isinstance(module, _BatchNorm) and module.training]


def refuse_training_norms(model: nn.Module, why: str) -> None:
    """Raise RequestError where a batch norm's statistics would be those of a micro-batch. why: there are such."""
    names = training_norms(model)
    if names:
        raise RequestError(
            f"{why}, but batch norm {names[0]} (of {len(names)}) takes its statistics from the batch, and would take "
            f"them from each micro-batch: freeze it (optim.freeze=[{names[0]}.*]) and it uses the stored ones, put "
            "another norm in its place, or set micro_batches=1"
        )


def _leaf(x: torch.Tensor) -> torch.Tensor:
    return x.detach().clone().requires_grad_()


def _gradient(leaf: torch.Tensor | None) -> torch.Tensor | None:
    if leaf is None:
        return None
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def _hand_over(again: Embeddings, gradients: Sequence[torch.Tensor | None]) -> None:
    outputs = (again.video_BD, again.text_BKD, again.temperature, again.bias)
    pairs = [
        (output, gradient)
        for output, gradient in zip(outputs, gradients, strict=True)
        if output is not None and output.requires_grad
    ]
    torch.autograd.backward([output for output, _ in pairs], [gradient for _, gradient in pairs])
