"""`train fit`: what it will do, steps, validation, checkpoints, and how it may end. Reads top to bottom."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from shared.atomic import replace_file
from shared.errors import RequestError, RunFailed, StoppedEarly
from shared.store import Store, open_store, refuse_inside_store
from train.batch import Batch
from train.checkpoint import (
    best_path,
    checkpoint_path,
    differences,
    drop_old,
    gather_random_states,
    last_checkpoint,
    load_checkpoint,
    random_state,
    restore_random_state,
    save_checkpoint,
)
from train.config import FitConfig
from train.data import WindowData
from train.delivery.loader import Loader
from train.distributed import World, broadcast_seed, distributed_world
from train.divergence import explained, refuse_bad_weights
from train.embedded import embed_split
from train.losses import Loss
from train.model import build_model
from train.negatives import build_negatives
from train.optim import build_optimizer
from train.order import Selection
from train.permutation import mix_key
from train.precision import check_precision
from train.retrieval import is_better, measure, metric_value
from train.runlog import Meter, RunLog, describe
from train.schedule import learning_rate_factor
from train.sharding import full_state
from train.sources import build_order, open_sources
from train.step import NonFiniteStep, StepResult, TrainStep
from train.stopping import StopSignals, lost_rank_fails, recorded_exit
from train.teacher import open_teacher
from train.towers import compile_towers, synchronise_norms


def fit(config: FitConfig) -> None:
    """Train as `config` says, going on from a checkpoint where there is one.

    Raises RequestError or EnvironmentLacking before the first step; DamageFound for files that were changed;
    StoppedEarly after a signal, with a checkpoint written; RunFailed for numbers that are not finite, or a lost rank.
    exit.json in the run folder says the same.
    """
    # Before anything is written there: the next writer of the store would delete or report it.
    refuse_inside_store(config.run, "the run folder (run=PATH)")
    with (
        # Outermost, so that the SIGTERM which torchrun sends after another rank failed does not cut off the record.
        StopSignals() as signals,
        recorded_exit(config.run),
        lost_rank_fails(),
        distributed_world(config.device) as world,
    ):
        Trainer(config, world, signals).run()


class Trainer:
    """One run, on one rank. All ranks do the same; rank 0 also writes and prints."""

    def __init__(self, config: FitConfig, world: World, signals: StopSignals) -> None:
        self.config, self.world, self._signals = config, world, signals
        check_precision(config.precision, world.device)
        store = open_store(config.store)
        self.data = WindowData(store, config.set, config.train_split, stream=config.stream, config=config.data)
        self.validation = self._validation_data(store)
        self.sources = open_sources(config, self.data)
        self.order = build_order(self.sources, config, world.size)
        self.total = config.total_steps(self.order)
        torch.manual_seed(config.seed)
        self.model = build_model(config.model, input_dim=self.data.input_dim, tokens=self.sources.tokens).to(
            world.device
        )
        if config.sync_batch_norm:
            self.model = synchronise_norms(self.model, world)
        self.optimizer = build_optimizer(
            self.model, config.optim, config.batch_size, sharded=config.shard == 1 and world.size > 1
        )
        self.teacher = open_teacher(config.loss, self.data, self.sources.tokens, world)
        self.negatives = build_negatives(
            config.negatives, self.model, world, videos=self.sources.videos, seed=config.seed
        )
        if config.compile:
            compile_towers(self.model)
        self.log = RunLog(config.run, world.is_main)
        self.meter = Meter()
        self.step = self._step()
        self.best: float | None = None
        self._saved_step = -1

    def run(self) -> None:
        """Train until the last step, a signal, or a number that is not finite."""
        start = self._resume()
        self.log.say(describe(self.config, self.world, self.sources, self.order, self.total, self.model))
        if start >= self.total:
            self.log.say(f"complete: all {self.total} steps are done; nothing to do")
            return
        with self._loader() as loader:
            batches = loader.batches(self._selection, start, self.total)
            for index in range(start, self.total):
                result = self._train(self._next(batches), index)
                self._after(index + 1, result)
        best = "" if self.best is None else f"; best {self.config.checkpoint.metric} {self.best:.4g}"
        self.log.say(f"done: {self.total} steps{best}; checkpoints in {checkpoint_path(self.config.run, 0).parent}")

    def _step(self) -> TrainStep:
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
            micro_batches=config.micro_batches,
            say=self.log.say,
        )

    def _loader(self) -> Loader:
        return Loader(
            self.sources.datas,
            self.sources.shapes(self.order, self.world.size),
            config=self.config.data,
            first_ids=self.sources.offsets,
            device=self.world.device,
        )

    def _selection(self, index: int) -> Selection:
        """This rank's part of global batch number `index`."""
        return self.order.batch(index).part(self.world.rank, self.world.size)

    def _next(self, batches: Iterator[Batch]) -> Batch:
        begin = time.perf_counter()
        batch = next(batches)
        self.meter.count(len(batch) * self.world.size, time.perf_counter() - begin)
        return batch

    def _train(self, batch: Batch, index: int) -> StepResult:
        before = random_state(self.world.device)
        try:
            return self.step(batch, index)
        except NonFiniteStep as error:
            raise self._dump(error, index, before) from None

    def _after(self, done: int, result: StepResult) -> None:
        """Everything that follows a step: log, validate, save, stop if asked to."""
        at_end = done == self.total
        epochs, within = self.order.place(done)
        if done % self.config.log_every == 0 or at_end:
            self._log_step(done, result)
        if self._validates(epochs, within, at_end):
            self._validate(done)
        saving = self.config.checkpoint
        by_epoch = within == 0 and saving.every_epochs > 0 and epochs % saving.every_epochs == 0
        by_step = saving.every_steps > 0 and done % saving.every_steps == 0
        if at_end or by_epoch or by_step:
            self._save(done)
        if self._signals.agreed(self.world) and not at_end:
            self._save(done)
            raise StoppedEarly(
                f"stopped by {self._signals.received or 'a signal on another rank'} after step {done} of {self.total}, "
                f"saved in {checkpoint_path(self.config.run, done)}: run the same command again to go on"
            )

    def _log_step(self, done: int, result: StepResult) -> None:
        record = {
            "step": done,
            "epoch": self.order.epochs_at(done),
            "loss": result.loss,
            "accuracy": result.accuracy,
            "grad_norm": None if result.skipped else result.grad_norm,
            "loss_scale": result.scale,
            "temperature": result.temperature,
            "lr": result.learning_rate,
            **self.meter.read(),
        }
        self.log.write(record)
        self.log.say(
            f"step {done}/{self.total}  loss {result.loss:.4f}  accuracy {result.accuracy:.3f}  "
            f"grad {result.grad_norm:.3g}  temperature {result.temperature:.4f}  lr {result.learning_rate:.2e}  "
            f"{record['samples_per_s']:.0f} samples/s  waiting {record['data_wait']:.0%}"
        )

    def _validation_data(self, store: Store) -> WindowData | None:
        config = self.config
        if config.val_split is None or config.eval_every == 0:
            return None
        return WindowData(store, config.set, config.val_split, stream=config.stream, config=config.data)

    def _validates(self, epochs: int, within: int, at_end: bool) -> bool:
        if self.validation is None:
            return False
        return at_end or (within == 0 and epochs % self.config.eval_every == 0)

    def _validate(self, done: int) -> None:
        assert self.validation is not None
        config, name = self.config.evaluate, self.config.checkpoint.metric
        refuse_bad_weights(self.model, done)
        embedded = embed_split(self.model, self.validation, self.world, config.batch_size, config.captions)
        try:
            metrics = measure(embedded, self.validation, config, normalise=self.model.normalise)
        except RunFailed as error:
            raise explained(error, self.model, done) from None
        value = metric_value(metrics, name)
        self.log.write({"step": done, "epoch": self.order.epochs_at(done), "validation": metrics})
        self.log.say(f"step {done}/{self.total}  validation {name} {value:.4g}")
        if is_better(name, value, self.best):
            self.best = value
            self._write(best_path(self.config.run), self._content(done, random_state(self.world.device)))
        self.meter.restart()

    def _save(self, done: int) -> None:
        if done == self._saved_step:
            return
        self._write(checkpoint_path(self.config.run, done), self._content(done, random_state(self.world.device)))
        if self.world.is_main:
            drop_old(self.config.run, self.config.checkpoint.keep)
        self._saved_step = done

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        if self.world.is_main:
            save_checkpoint(path, content)

    def _content(self, done: int, random_state_N: torch.Tensor) -> dict[str, Any]:
        """What a checkpoint holds; every rank calls it, because every rank's generators are in it, and rank 0's is
        the one to write."""
        return {
            "model": self.model.state_dict(),
            "optimizer": full_state(self.optimizer),
            "step": self.step.state_dict(),
            "negatives": None if self.negatives is None else self.negatives.state_dict(),
            "order": self.order.state(done),
            "random": gather_random_states(random_state_N, self.world),
            "config": self.config.model_dump(mode="json"),
            "identity": self._identity(),
            "input_dim": self.data.input_dim,
            "tokenizer": self.data.manifest.info.tokenizer,
            "stream": {
                "name": self.data.stream.name,
                "fingerprint": self.data.stream.fingerprint,
                "identity": self.data.stream.entry.identity,
            },
            "best": self.best,
        }

    def _resume(self) -> int:
        """The number of steps that are done already; sets up the generators and the run folder."""
        # Dropout differs between ranks, the weights do not.
        torch.manual_seed(mix_key(self.config.seed, self.world.rank) >> 1)
        path = self._resume_path()
        done = self._load(path) if path is not None else 0
        if broadcast_seed(done, self.world) != done:
            raise RequestError(
                f"rank {self.world.rank} finds {done} steps done in {self.config.run}, rank 0 another number: "
                "the run folder must be on a file system that all ranks share"
            )
        if self.world.is_main:
            text = OmegaConf.to_yaml(OmegaConf.create(self.config.model_dump(mode="json")))
            replace_file(self.config.run / "config.yaml", text.encode())
        self.log.cut_after(done)
        return done

    def _resume_path(self) -> Path | None:
        run, resume = self.config.run, self.config.resume
        if resume not in ("auto", "never"):
            return Path(resume)
        last = last_checkpoint(run)
        if resume == "never" and last is not None:
            raise RequestError(
                f"resume=never, but run folder {run} holds {last.name} of an earlier run: give another folder with "
                "run=PATH, or delete this one"
            )
        return last

    def _load(self, path: Path) -> int:
        content = load_checkpoint(path)
        now = self._identity() | {"data_seen": self.order.identity}
        before = content["identity"] | {"data_seen": content["order"]["identity"]}
        changed = differences(before, now)
        if changed:
            raise RequestError(
                f"checkpoint {path} was made under another configuration or store:\n  "
                + "\n  ".join(changed)
                + "\nset these back, or start anew with another run=PATH"
            )
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.step.load_state_dict(content["step"])
        if self.negatives is not None:
            self.negatives.load_state_dict(content["negatives"], self.model)
        self.best = content["best"]
        done = int(content["order"]["step"])
        self._saved_step = done
        self.log.say(f"resuming from {path} after step {done}")
        if not restore_random_state(content["random"], self.world):
            torch.manual_seed(mix_key(self.config.seed, self.world.rank, done) >> 1)
            self.log.say("the checkpoint is of another world size: same batches, but dropout draws anew")
        return done

    def _identity(self) -> dict[str, Any]:
        """What decides the weights, beside the data; a teacher counts by its content, wherever it lies."""
        teacher = None if self.teacher is None else self.teacher.fingerprint
        return self.config.identity() | ({} if teacher is None else {"teacher": teacher})

    def _dump(self, error: NonFiniteStep, index: int, random_state_N: torch.Tensor) -> RunFailed:
        """Save the state before the step that failed, so that it can be looked at, and say where."""
        names = self.sources.video_names(error.video_ids)
        path = self.config.run / f"nonfinite-{index:08d}.pt"
        failure = {"step": index, "what": error.what, "value": str(error.value), "videos": names}
        self._write(path, self._content(index, random_state_N) | {"failure": failure})
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        return RunFailed(
            f"step {index + 1}: the {error.what} is {error.value}, expected a finite number; videos {shown}. "
            f"No weight was changed; the state before the step is in {path}. Look at these videos, lower "
            "optim.lr, or raise model.temperature.minimum"
        )
