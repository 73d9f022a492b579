"""`train replay`: a step that failed is run again, part by part, until the first number that is not finite is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from shared.errors import RequestError
from train.accumulation import hold_frozen_norms
from train.batch import Batch
from train.checkpoint import load_checkpoint, restore_random_state
from train.checkpoint_content import check_content, check_step, content_fits
from train.data import WindowData
from train.distributed import World, distributed_world
from train.evaluate import config_of
from train.losses import Beyond, Loss
from train.losses.grid import blocks
from train.model import Embeddings
from train.order import Selection
from train.parts import Parts, build_parts
from train.precision import autocast
from train.saving import restore_parts
from train.towers import Inputs

# Similarities that are in memory at a time, and names that are shown of those found.
_BLOCK, _SHOWN = 1 << 22, 5


class Part(NamedTuple):
    """name: of what was computed. fault: where it is not finite, or None. value: what it is, for people."""

    name: str
    fault: str | None
    value: str = "finite"


@dataclass(frozen=True)
class Replayed:
    """step: 0-based number of the global batch. failed: what the run said then. parts: in the order of computing."""

    step: int
    failed: str
    parts: list[Part]
    notes: list[str]

    @property
    def first(self) -> Part | None:
        """The first part with a fault; those behind it follow from it."""
        return next((part for part in self.parts if part.fault is not None), None)

    def lines(self) -> str:
        """For a terminal."""
        return "\n".join(
            [
                f"step {self.step + 1}, which failed as {self.failed}",
                *self.notes,
                *(f"{part.name:<13} {part.fault or part.value}" for part in self.parts),
            ]
        )


def replay(dump: Path, store: Path | None = None) -> Replayed:
    """Run the step of a nonfinite-*.pt again on one process, all ranks' parts of the batch one after another.

    Every rank's part goes through the towers by itself, with that rank's random numbers, and is held with all the
    others until the gradients are there: it takes the memory of all ranks together. Nothing is written.
    store: where it lies now; None for where it lay. Raises RequestError for a file that is no such dump, for another
    store, and under several processes; DamageFound for a file that was changed.
    """
    if dump.is_dir():
        raise RequestError(_of_folder(dump))
    content = load_checkpoint(dump)
    if "failure" not in content:
        raise RequestError(
            f"{dump} is a checkpoint, not a dump of a failed step; give a nonfinite-*.pt of a run folder"
        )
    failure, config = content["failure"], config_of(content, dump)
    check_content(content, dump, resumable=True)
    with content_fits(dump):
        failed, step, was = f"{failure['what']} {failure['value']}", int(failure["step"]), Path(failure["store"])
    config = config.model_copy(update={"store": store or was})
    with distributed_world(config.device) as world:
        if world.size > 1:
            raise RequestError(f"replay runs on one process, not on {world.size}; start it without torchrun")
        parts = build_parts(config, world, ranks=len(content["random"]))
        restore_parts(parts, content, dump, "give the store that it was made of with --store, as it was then")
        check_step(content, dump, parts.total)
        again = _Again(parts, step, content["random"])
        found = list(again.parts())
    return Replayed(step, failed, found, again.notes)


def _of_folder(run: Path) -> str:
    dumps = sorted(run.glob("nonfinite-*.pt"))
    if not dumps:
        return f"{run} is a folder without a nonfinite-*.pt: no step of a run failed there; give such a file"
    return f"{run} is a folder, expected a dump of a failed step; give {dumps[-1]}"


class _Again:
    """One step over the parts of all ranks."""

    def __init__(self, parts: Parts, step: int, states_WN: torch.Tensor) -> None:
        self._parts, self._step, self._states_WN = parts, step, states_WN
        self._ranks = len(states_WN)
        self._selection = parts.order.batch(step)
        self._data: WindowData = parts.sources.datas[self._selection.source]
        self.notes: list[str] = []

    def parts(self) -> Iterator[Part]:
        """Each part of the step as soon as it is computed."""
        parts = self._parts
        parts.model.train()
        hold_frozen_norms(parts.model)
        parts.model.temperature.schedule_(self._step / parts.total)
        yield self._weights()
        batches = [self._batch(self._selection.part(rank, self._ranks)) for rank in range(self._ranks)]
        whole = Batch(**{name: torch.cat([batch.present[name] for batch in batches]) for name in batches[0].present})
        rows_B = (whole.video_BTD.isfinite() | ~whole.video_mask_BT[:, :, None]).flatten(1).all(dim=1)
        yield Part("rows", self._clips(rows_B))
        with autocast(parts.world.device, parts.config.precision):
            embeddings = self._towers(batches)
            yield Part("video tower", self._clips(embeddings.video_BD.isfinite().all(dim=1)))
            yield Part("text tower", self._captions(embeddings.text_BKD.isfinite().all(dim=2)))
            yield Part("temperature", *_number("temperature", embeddings.temperature))
            yield Part("similarities", self._similarities(embeddings))
            loss = self._loss(whole, embeddings)
        yield Part("loss", *_number("loss", loss))
        with torch.autocast(loss.device.type, enabled=False):
            torch.autograd.backward([loss])
        yield self._gradients()

    def _batch(self, selection: Selection) -> Batch:
        """One rank's part, with video numbers that no two sources share."""
        batch = self._data.batch(selection)
        batch.video_ids_B.add_(self._parts.sources.offsets[selection.source])
        return batch.to(self._parts.world.device)

    def _towers(self, batches: list[Batch]) -> Embeddings:
        device = self._parts.world.device
        each = []
        for rank, batch in enumerate(batches):
            if not restore_random_state(self._states_WN, World(rank, self._ranks, 0, device)):
                self.notes = [f"made on another kind of device than {device.type}: dropout draws anew"]
            each.append(self._parts.model(*_inputs(batch)))
        video_ND, text_NKD, mask_NK = (torch.cat([one[place] for one in each]) for place in range(3))
        return Embeddings(video_ND, text_NKD, mask_NK, each[0].temperature, each[0].bias)

    def _loss(self, batch: Batch, embeddings: Embeddings) -> torch.Tensor:
        parts, inputs = self._parts, _inputs(batch)
        configured = Loss(parts.config.loss, parts.config.seed)
        said = None if parts.teacher is None else parts.teacher(*inputs)

        def loss(video_BD: torch.Tensor, text_NKD: torch.Tensor, beyond: Beyond | None = None) -> torch.Tensor:
            return configured(
                video_BD,
                text_NKD,
                embeddings.text_mask_BK,
                batch.video_ids_B,
                temperature=embeddings.temperature,
                bias=embeddings.bias,
                beyond=beyond,
                teacher=said,
                world=parts.world,
                step=self._step,
            )

        if parts.negatives is None:
            return loss(embeddings.video_BD, embeddings.text_BKD)
        return parts.negatives.loss(loss, inputs, embeddings, batch.video_ids_B, self._step)[0]

    @torch.no_grad()
    def _similarities(self, embeddings: Embeddings) -> str | None:
        """The first similarity of two finite embeddings that is not finite, as the loss scales it."""
        with torch.autocast(embeddings.video_BD.device.type, enabled=False):
            text_MD, mask_M = embeddings.text_BKD.flatten(0, 1).float(), embeddings.text_mask_BK.flatten()
            for rows in blocks(len(embeddings.video_BD), max(1, _BLOCK // len(text_MD))):
                scaled_TM = embeddings.video_BD[rows].float() @ text_MD.T / embeddings.temperature.float()
                bad = (~scaled_TM.isfinite() & mask_M).nonzero()
                if len(bad):
                    row, text = (int(number) for number in bad[0])
                    value = float(scaled_TM[row, text])
                    clip, caption = divmod(text, embeddings.text_BKD.shape[1])
                    return f"{value} of {self._clip(rows.start + row)} with {self._caption(clip, caption)}"
        return None

    def _weights(self) -> Part:
        bad = [name for name, weight in self._parts.model.named_parameters() if not bool(weight.isfinite().all())]
        size, name = max((float(w.detach().abs().max()), name) for name, w in self._parts.model.named_parameters())
        return Part("weights", _shown(bad), f"finite, the largest is {size:.3g} in {name}")

    def _gradients(self) -> Part:
        named = [(name, one.grad) for name, one in self._parts.model.named_parameters() if one.grad is not None]
        bad = [name for name, grad in named if not bool(grad.isfinite().all())]
        norm = float(torch.nn.utils.get_total_norm([grad for _, grad in named]))
        # Finite gradients may have squares that are not.
        fault = _shown(bad)
        if fault is None and norm == float("inf"):
            size, name = max((float(grad.abs().max()), name) for name, grad in named)
            fault = f"norm {norm}, though every gradient is finite: the largest is {size:.3g} in {name}"
        return Part("gradients", fault, f"finite, norm {norm:.4g}")

    def _clips(self, finite_N: torch.Tensor) -> str | None:
        return _shown([self._clip(clip) for clip in (~finite_N).nonzero().flatten().tolist()])

    def _captions(self, finite_NK: torch.Tensor) -> str | None:
        return _shown([self._caption(clip, place) for clip, place in (~finite_NK).nonzero().tolist()])

    def _clip(self, clip: int) -> str:
        window, table = int(self._selection.window_B[clip]), self._data.windows
        (video,) = self._data.video_names([int(table.video_W[window])])
        return f"{video} @ {float(table.start_W[window]):.1f}-{float(table.end_W[window]):.1f} s"

    def _caption(self, clip: int, place: int) -> str:
        window_1, choice_1K = self._selection.window_B[clip : clip + 1], self._selection.choice_BK[clip : clip + 1]
        text = self._data.manifest.caption_texts[int(self._data.captions(window_1, choice_1K)[0, place])]
        return f"caption {text!r} of {self._clip(clip)}"


def _inputs(batch: Batch) -> Inputs:
    return Inputs(
        batch.video_BTD,
        batch.video_mask_BT,
        batch.tokens_BKL,
        batch.token_mask_BKL,
        batch.caption_mask_BK,
        batch.caption_BKE,
    )


def _number(name: str, value: torch.Tensor) -> tuple[str | None, str]:
    number = float(value.detach())
    return (None if bool(value.isfinite()) else f"the {name} is {number}"), f"{number:.6g}"


def _shown(names: list[str]) -> str | None:
    if not names:
        return None
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return "not finite: " + ", ".join(names[:_SHOWN]) + more
