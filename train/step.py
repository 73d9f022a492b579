"""One optimisation step: towers, gather, loss over the global batch, gradients, clipping, update."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from shared.errors import RunFailed
from shared.words import counted
from train.accumulation import Made, embed, hold_frozen_norms, refuse_training_norms
from train.batch import Batch
from train.checkpoint import random_state, set_random_state
from train.distributed import World, agree_on_bags, gather_plain, gather_rows, mean_over_ranks, pad_bags
from train.losses import Beyond, Loss
from train.losses.accuracy import share_of_clips_won
from train.losses.likeness import directions
from train.losses.masking import at_least_float32
from train.model.two_tower import Embeddings, TwoTower
from train.negatives import Negatives
from train.negatives.fresh import Fresh
from train.optim import clip_gradients, set_learning_rate
from train.out_of_memory import MicroBatches, Rehearsal, tell_memory
from train.precision import SMALLEST_SCALE, Precision, make_scaler
from train.sharded_towers import ShardedTowers
from train.teacher import TeacherTowers
from train.timing import GradientWait
from train.towers import DdpConfig, Inputs, Towers


@dataclass(frozen=True)
class StepResult:
    """loss: over the global batch. grad_norm: before clipping. accuracy: share of the clips that have a caption whose
    best text in the global batch is their own. learning_rate: of the first group. clips: in the global batch.
    scale: what the loss was multiplied by, 1 but in float16. skipped: whether a gradient overflowed at that scale, so
    that the weights stay and the scale falls; grad_norm is then not finite.
    own_loss: of this rank's clips. directions_2D: of this rank, see `directions`.
    """

    loss: float
    grad_norm: float
    temperature: float
    accuracy: float
    learning_rate: float
    clips: int
    scale: float
    skipped: bool
    own_loss: float
    directions_2D: torch.Tensor = field(compare=False, repr=False)


class NonFiniteStep(RunFailed):
    """The loss or a gradient was NaN or infinite; raised on all ranks before any weight changed.

    video_ids: of the clips whose embeddings are not finite, or of the whole global batch where all are.
    """

    def __init__(self, what: str, value: float, video_ids: list[int]) -> None:
        self.what, self.value, self.video_ids = what, value, video_ids
        shown = ", ".join(str(video) for video in video_ids[:8]) + (", ..." if len(video_ids) > 8 else "")
        super().__init__(
            f"the {what} is {value}, expected a finite number; videos {shown}; no weight was changed: look at these "
            "videos' features, lower the learning rate, or raise the temperature's lower bound"
        )


class _Done(NamedTuple):
    """loss: this rank's share. embeddings: own videos, everybody's texts. fresh: to remember once the step is taken."""

    loss: torch.Tensor
    embeddings: Embeddings
    fresh: Fresh | None


class TrainStep:
    """Calls in a row are the training; all state is in `model`, `optimizer`, `negatives` and the step's number.

    model: the bare model, for checkpoints and evaluation. The forward goes through DDP when there are several ranks,
    unless its towers are spread over them: sharded.
    factor: learning-rate factor of a 0-based step number. total_steps: of the run, for a scheduled temperature.
    negatives: beyond the batch, or None. teacher: for a loss that names one. precision: of the towers.
    scaler: of the loss, None for the one that the precision needs. ddp: how ranks average gradients.
    micro_batches: how many parts of a rank's clips go through the towers one after another; the step is that of one.
    Where memory runs out there are more from then on. say: tells people of it, on rank 0.
    """

    def __init__(
        self,
        model: TwoTower,
        optimizer: torch.optim.Optimizer,
        loss: Loss,
        world: World,
        *,
        factor: Callable[[int], float],
        clip: float | None,
        total_steps: int,
        negatives: Negatives | None = None,
        teacher: TeacherTowers | None = None,
        precision: Precision = "float32",
        ddp: DdpConfig | None = None,
        sharded: ShardedTowers | None = None,
        scaler: torch.amp.GradScaler | None = None,
        micro_batches: int = 1,
        say: Callable[[str], None] = print,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self._loss = loss
        self._world = world
        self._factor = factor
        self._clip = clip
        self._total_steps = total_steps
        self._negatives, self._teacher = negatives, teacher
        self._waits = GradientWait(model.parameters() if world.size > 1 and sharded is None else ())
        self._scaler = scaler or make_scaler(precision, world.device)
        self._towers = Towers(model, world, precision, ddp, sharded)
        self.micro_batches = MicroBatches(micro_batches, model, world, say)
        self._rehearsal = Rehearsal(self._towers, world)
        self._say, self._looks_for_idle = say, ddp is None or ddp.find_unused_parameters is not True

    def __call__(self, batch: Batch, index: int) -> StepResult:
        """Train on this rank's part of global batch number `index`, on the model's device.

        Raises NonFiniteStep (on all ranks), RequestError when ranks bring different numbers of clips, or for
        micro-batches with a batch norm that learns.
        """
        self.model.train()
        hold_frozen_norms(self.model)
        if self.micro_batches.number > 1:
            refuse_training_norms(self.model, f"micro_batches={self.micro_batches.number}")
        set_learning_rate(self.optimizer, self._factor(index))
        self.model.temperature.schedule_(index / self._total_steps)
        inputs = self._inputs(batch)
        video_ids_N = gather_plain(batch.video_ids_B, self._world)
        done = self._gradients(inputs, video_ids_N, index)
        self._tell_idle()
        self._scaler.unscale_(self.optimizer)
        norm = clip_gradients(self.model.parameters(), self._clip, self._world)
        result = self._result(done, norm, video_ids_N)
        if not result.skipped:
            self._take(done)
        self._scaler.update()
        if result.skipped and self._scaler.get_scale() >= result.scale:
            # Each gradient is finite, their norm is not: no smaller scale is to be had.
            raise self._not_finite("gradient norm", result.grad_norm, done, video_ids_N)
        return result

    def _tell_idle(self) -> None:
        """Once, which parameters learn nothing, unless a config says that they differ from batch to batch."""
        if not self._looks_for_idle:
            return
        self._looks_for_idle = False
        learning = [(name, p.grad) for name, p in self.model.named_parameters() if p.requires_grad]
        idle = self._rehearsal.unused if self._world.size > 1 else [name for name, grad in learning if grad is None]
        if idle:
            self._say(
                f"warning: no embedding depends on {counted(len(idle), 'parameter')} that should learn, {idle[0]} the "
                "first: look at the tower's forward, or freeze them (optim.freeze)"
            )

    def _take(self, done: _Done) -> None:
        try:
            self._scaler.step(self.optimizer)
        except torch.OutOfMemoryError as error:
            tell_memory(error, self._world)
            raise self.micro_batches.failed_half_way() from None
        self.model.temperature.clamp_()
        if self._negatives is not None and done.fresh is not None:
            self._negatives.after_step(done.fresh, self.model)

    def state_dict(self) -> dict[str, Any]:
        """What a run that goes on needs beside the model, the optimizer and the negatives."""
        return {"micro_batches": self.micro_batches.number, "scaler": self._scaler.state_dict()}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """A config that asks for more micro-batches than the earlier run needed has them."""
        self.micro_batches.number = max(self.micro_batches.number, int(content["micro_batches"]))
        self._scaler.load_state_dict(content["scaler"])

    def _inputs(self, batch: Batch) -> Inputs:
        """What the model takes, with bags as wide as the widest of all ranks."""
        candidates = agree_on_bags(len(batch), batch.tokens_BKL.shape[1], self._world)
        # Padded before the towers: a rank without a single caption still runs its text tower, as DDP needs it to.
        tokens_BKL, token_mask_BKL = (pad_bags(x, candidates) for x in (batch.tokens_BKL, batch.token_mask_BKL))
        caption_mask_BK = pad_bags(batch.caption_mask_BK, candidates)
        caption_BKE = None if batch.caption_BKE is None else pad_bags(batch.caption_BKE, candidates)
        return Inputs(batch.video_BTD, batch.video_mask_BT, tokens_BKL, token_mask_BKL, caption_mask_BK, caption_BKE)

    def _gradients(self, inputs: Inputs, video_ids_N: torch.Tensor, index: int) -> _Done:
        """Every parameter's gradient of the global loss, in `grad`, in as many micro-batches as it takes; nothing else
        changes but the generators."""
        if self._world.size > 1:
            self._rehearsal.until_it_fits(inputs, self.micro_batches)
        state = random_state(self._world.device)
        while True:
            done = self._tried(inputs, video_ids_N, index)
            if done is not None:
                return done
            # Out of the handler, so that nothing of the first try is held.
            set_random_state(state, self._world.device)
            self.optimizer.zero_grad(set_to_none=True)
            self.micro_batches.double(len(inputs.video_BTD))

    def _tried(self, inputs: Inputs, video_ids_N: torch.Tensor, index: int) -> _Done | None:
        """None where one process ran out of memory. Raises RunFailed where one of several did."""
        try:
            return self._once(inputs, video_ids_N, index)
        except torch.OutOfMemoryError as error:
            tell_memory(error, self._world)
            if self._world.size > 1:
                raise self.micro_batches.failed_in_collective(len(inputs.video_BTD)) from None
            return None

    def _once(self, inputs: Inputs, video_ids_N: torch.Tensor, index: int) -> _Done:
        self.optimizer.zero_grad(set_to_none=True)
        made = embed(self._towers, inputs, self.micro_batches.number)
        embeddings = self._gathered(made)
        loss, fresh = self._compare(inputs, embeddings, video_ids_N, index)
        # Under autocast the gradients of float32 products would be computed in half precision, the loss's among them.
        with self._waits.around_backward():
            with torch.autocast(loss.device.type, enabled=False):
                torch.autograd.backward([self._scaler.scale(loss)])
            made.finish()
            self._towers.average()
        return _Done(loss.detach(), embeddings, fresh)

    def _gathered(self, made: Made) -> Embeddings:
        """Own videos, everybody's texts and masks. In full precision, since ranks add up the gradients of the texts."""
        own, world = made.own, self._world
        text_NKD, text_mask_NK = (
            gather_rows(at_least_float32(own.text_BKD), world),
            gather_plain(own.text_mask_BK, world),
        )
        return own._replace(text_BKD=text_NKD, text_mask_BK=text_mask_NK)

    def _compare(
        self, inputs: Inputs, embeddings: Embeddings, video_ids_N: torch.Tensor, index: int
    ) -> tuple[torch.Tensor, Fresh | None]:
        """This rank's share of the loss, and what is to be remembered when the step is taken."""
        with self._towers.autocast():
            said = None if self._teacher is None else self._teacher(*inputs)

            def loss(video_BD: torch.Tensor, text_NKD: torch.Tensor, beyond: Beyond | None = None) -> torch.Tensor:
                return self._loss(
                    video_BD,
                    text_NKD,
                    embeddings.text_mask_BK,
                    video_ids_N,
                    temperature=embeddings.temperature,
                    bias=embeddings.bias,
                    beyond=beyond,
                    teacher=said,
                    world=self._world,
                    step=index,
                )

            if self._negatives is None:
                return loss(embeddings.video_BD, embeddings.text_BKD), None
            return self._negatives.loss(loss, inputs, embeddings, video_ids_N, index)

    def _result(self, done: _Done, norm: torch.Tensor, video_ids_N: torch.Tensor) -> StepResult:
        """One transfer for all numbers of the step, and the check that they are finite."""
        embeddings = done.embeddings
        accuracy = share_of_clips_won(
            embeddings.video_BD, embeddings.text_BKD, embeddings.text_mask_BK, video_ids_N, self._world
        )
        numbers = torch.stack([x.detach().double() for x in (done.loss, norm, embeddings.temperature, accuracy)])
        values = torch.cat([mean_over_ranks(numbers, self._world), numbers[:1]]).tolist()
        loss_value, norm_value, temperature, accuracy_value, own_loss = values
        scale = float(self._scaler.get_scale())
        if not math.isfinite(loss_value):
            raise self._not_finite("loss", loss_value, done, video_ids_N)
        skipped = not math.isfinite(norm_value)
        if skipped and scale <= SMALLEST_SCALE:
            raise self._not_finite("gradient norm", norm_value, done, video_ids_N)
        return StepResult(
            loss=loss_value,
            grad_norm=norm_value,
            temperature=temperature,
            accuracy=accuracy_value,
            learning_rate=float(self.optimizer.param_groups[0]["lr"]),
            clips=len(video_ids_N),
            scale=scale,
            skipped=skipped,
            own_loss=own_loss,
            directions_2D=directions(embeddings.video_BD, embeddings.text_BKD, embeddings.text_mask_BK, self._world),
        )

    def _not_finite(self, what: str, value: float, done: _Done, video_ids_N: torch.Tensor) -> NonFiniteStep:
        return NonFiniteStep(what, value, _suspects(done.embeddings, video_ids_N, self._world))


def _suspects(embeddings: Embeddings, video_ids_N: torch.Tensor, world: World) -> list[int]:
    """All ranks call it: each knows its own videos only."""
    finite_N = gather_plain(embeddings.video_BD.isfinite().all(dim=1), world)
    finite_N &= embeddings.text_BKD.isfinite().flatten(1).all(dim=1)
    chosen_N = video_ids_N if bool(finite_N.all()) else video_ids_N[~finite_N]
    return sorted(set(chosen_N.tolist()))
