"""What a training config file may say. Sections stand beside the code that they configure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from shared.config import Config
from shared.config_schema import Misfit
from train.checkpoint import CheckpointConfig
from train.delivery.config import MAKING, DataConfig
from train.distributed import DeviceName
from train.early_stop import StopConfig
from train.losses import DistillConfig, LossConfig, MilNceConfig
from train.model import ModelConfig
from train.negatives import NegativesConfig
from train.optim import OptimConfig
from train.order import BatchOrder, MixtureConfig, OrderConfig
from train.precision import Precision
from train.retrieval import EvaluateConfig, check_metric
from train.schedule import ScheduleConfig
from train.sharding import Shard, shard_fault
from train.towers import DdpConfig


class FitConfig(Config):
    """One training run. Paths are relative to the current folder.

    store, set, stream: what to train on; `stream` may stay out, a set knows its own. run: the folder that it fills.
    mixture: other stores to train on beside it, null for none. model: sizes and towers. loss: what is learned from.
    negatives: beyond the batch, null for none. optim: how. schedule: of the learning rate. order: which sample comes
    when. data: how much of a window is read. checkpoint: when to save. evaluate: how to measure retrieval. device:
    `auto` is CUDA where there is one, else the CPU. train_split, val_split: names in the set; no validation where
    val_split is null.
    batch_size: the global batch, over all ranks; with order.buckets, the most that one holds. epochs or steps: one of
    them. seed: of weights, order and dropout; of several ranks, the first one's counts.
    deterministic: only algorithms that give the same bits each time, on a GPU too; slower, and refused where torch has
    none. timeout_s: seconds that ranks wait for one that does not come; then the job ends.
    micro_batches: parts of each rank's clips that go through the towers one after another, to save memory; the step
    stays that of the whole batch, and takes one more forward. Where memory runs out there are more of them.
    precision: `bfloat16` and, on a GPU, `float16` run the towers under autocast; weights, similarities and the loss
    stay in float32.
    compile: whether torch compiles the towers, which takes a while in the first steps. sync_batch_norm: batch norms
    take their statistics from all ranks' clips; on GPUs alone. ddp: how ranks average their gradients.
    shard: `1` spreads the optimizer's state over the ranks (ZeRO stage 1), `2` the gradients too, and the parameters
    between two steps (stage 2), `3` the parameters within a step too (stage 3); checkpoints hold all of it either way.
    offload: with shard 2 or 3 on GPUs, keep each rank's share of parameters, gradients and optimizer state in CPU
    memory and compute the update there; on device cpu it changes nothing.
    log_every: steps between lines of metrics.jsonl. tensorboard: write the same curves for TensorBoard, too, into the
    run folder's `tensorboard`. eval_every: epochs between validations, 0 for none. stop: when to end before the last
    step, null for never.
    resume: `auto` goes on from the run folder's last checkpoint if there is one, `never` refuses a folder that has one,
    a path goes on from that file, or from the last checkpoint of that run folder.
    """

    store: Path
    run: Path
    set: str = "default"
    stream: str | None = None
    train_split: str = "train"
    val_split: str | None = "val"
    model: ModelConfig = ModelConfig()
    loss: LossConfig = MilNceConfig()
    negatives: NegativesConfig | None = None
    optim: OptimConfig = OptimConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    order: OrderConfig = OrderConfig()
    mixture: MixtureConfig | None = None
    data: DataConfig = DataConfig()
    batch_size: int = Field(default=256, ge=1)
    micro_batches: int = Field(default=1, ge=1)
    epochs: int | None = Field(default=None, ge=1)
    steps: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**63)
    deterministic: bool = False
    timeout_s: float = Field(default=600.0, gt=0, le=86_400)
    device: DeviceName = "auto"
    precision: Precision = "float32"
    compile: bool = False
    sync_batch_norm: bool = False
    ddp: DdpConfig = DdpConfig()
    shard: Shard = "none"
    offload: bool = False
    log_every: int = Field(default=10, ge=1)
    tensorboard: bool = False
    eval_every: int = Field(default=1, ge=0)
    stop: StopConfig | None = None
    checkpoint: CheckpointConfig = CheckpointConfig()
    resume: str = "auto"
    evaluate: EvaluateConfig = EvaluateConfig()

    @model_validator(mode="after")
    def _consistent(self) -> FitConfig:
        if (self.epochs is None) == (self.steps is None):
            raise Misfit(
                "epochs",
                f"give epochs or steps, one of them, and null for the other (epochs={self.epochs}, steps={self.steps})",
            )
        plain = self.loss.base if isinstance(self.loss, DistillConfig) else self.loss
        biased = plain is not None and plain.name == "sigmoid"
        if biased and self.model.logit_bias is None:
            raise Misfit("loss", "the sigmoid loss needs a bias, -10 in the paper: set model.logit_bias=-10")
        if not biased and self.model.logit_bias is not None:
            raise Misfit(
                "model.logit_bias",
                f"only loss.name=sigmoid has a bias, and loss.name={self.loss.name} is chosen here: leave it out "
                "(model.logit_bias=null)",
            )
        if plain is None and self.negatives is not None:
            raise Misfit(
                "negatives",
                f"negatives.name={self.negatives.name} with loss.name=distill and no loss.base: a teacher says nothing "
                "of what is remembered; give loss.base, or leave negatives out",
            )
        if self.stop is not None and (self.val_split is None or self.eval_every == 0):
            raise Misfit(
                "stop",
                f"stop.patience={self.stop.patience} without a validation (val_split={self.val_split}, eval_every="
                f"{self.eval_every}): give both, or leave stop out",
            )
        if self.ddp.static_graph and self.micro_batches > 1:
            raise Misfit(
                "ddp",
                f"ddp.static_graph=true with micro_batches={self.micro_batches}: only the last part of a step "
                "averages, which DDP takes for another graph; choose one of them",
            )
        fault = shard_fault(self)
        if fault is not None:
            raise Misfit("offload" if self.shard not in (2, 3) else "shard", fault)
        _check_best(self.checkpoint.metric, self.evaluate)
        return self

    def total_steps(self, order: BatchOrder) -> int:
        """The steps of the run, of which `epochs` have as many as the order says."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return order.steps_before(self.epochs)

    def identity(self) -> dict[str, Any]:
        """The part that decides the weights: a checkpoint goes on only under the same."""
        return self.model_dump(mode="json", exclude=_FREE)


def _check_best(metric: str, measured: EvaluateConfig) -> None:
    try:
        check_metric(metric, measured)
    except ValueError as error:
        raise Misfit("checkpoint.metric", f"{error} (evaluate.recall_at says which k)") from None


# May change between a checkpoint and the run that goes on from it. What a store holds, and a teacher, is compared by
# fingerprint.
_FREE: dict[str, Any] = dict.fromkeys((
    "store", "run", "stream", "val_split", "micro_batches", "compile", "ddp", "shard", "offload", "device", "timeout_s",
    "log_every", "tensorboard", "eval_every", "stop", "checkpoint", "resume", "evaluate",
), True) | {
    "data": set(MAKING), "loss": {"teacher"}, "mixture": {"sources": {"__all__": {"store", "stream"}}},
}  # fmt: skip
