"""`train fit`: what it will do, steps, validation, checkpoints, and how it may end. Reads top to bottom."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import torch
from omegaconf import OmegaConf

from shared.atomic import replace_file
from shared.errors import RunFailed, StoppedEarly
from shared.store import refuse_inside_store
from train.batch import Batch
from train.checkpoint import best_path, checkpoint_path, random_state
from train.config import FitConfig
from train.delivery.loader import Loader
from train.determinism import deterministic_algorithms
from train.distributed import World, broadcast_seed, distributed_world
from train.health import Health
from train.order import Selection
from train.parts import build_parts
from train.runlog import RunLog, describe, loss_words
from train.saving import Saving
from train.step import NonFiniteStep, StepResult
from train.stopping import StopSignals, lost_rank_fails, recorded_exit
from train.timing import Meter
from train.validation import Validation


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
        lost_rank_fails(config.timeout_s),
        deterministic_algorithms(config.deterministic),
        distributed_world(config.device, config.timeout_s) as world,
    ):
        # All ranks draw from one seed, whatever their own command line says.
        config = config.model_copy(update={"seed": broadcast_seed(config.seed, world)})
        trainer = Trainer(config, world, signals)
        with closing(trainer.log):
            trainer.run()


class Trainer:
    """One run, on one rank. All ranks do the same; rank 0 also writes and prints."""

    def __init__(self, config: FitConfig, world: World, signals: StopSignals) -> None:
        self.config, self.world, self._signals = config, world, signals
        self.parts = build_parts(config, world)
        self.total = self.parts.total
        self.log = RunLog(config.run, world.is_main, config.tensorboard)
        self.step = self.parts.step(self.log.say)
        self.validation = Validation(self.parts)
        self.health = Health(world)
        self.saving = Saving(self.parts, self.step, self.validation, self.health)
        self.meter = Meter()

    def run(self) -> None:
        """Train until the last step, a stop, a signal, or a number that is not finite."""
        start = self._resume()
        self.log.say(describe(self.parts))
        if start >= self.total or self.validation.why_stop():
            why = self.validation.why_stop() or f"all {self.total} steps are done"
            self.log.say(
                f"complete: {why}; nothing to do. The schedule ends here: to train longer, give more epochs (or steps) "
                "and another run=PATH"
            )
            return
        with self._loader() as loader:
            batches = loader.batches(self._selection, start, self.total)
            for index in range(start, self.total):
                result = self._train(self._next(batches), index)
                self._after(index + 1, result)
                if self.validation.why_stop():
                    break
        self.log.say(self._ending(index + 1))

    def _resume(self) -> int:
        """The number of steps that are done already; sets up the generators and the run folder."""
        done, said = self.saving.resume()
        for line in said:
            self.log.say(line)
        if self.world.is_main:
            text = OmegaConf.to_yaml(OmegaConf.create(self.config.model_dump(mode="json")))
            replace_file(self.config.run / "config.yaml", text.encode())
        self.log.begin(done)
        return done

    def _loader(self) -> Loader:
        sources = self.parts.sources
        return Loader(
            sources.datas,
            sources.shapes(self.parts.order, self.world.size),
            config=self.config.data,
            first_ids=sources.offsets,
            device=self.world.device,
        )

    def _selection(self, index: int) -> Selection:
        """This rank's part of global batch number `index`."""
        return self.parts.order.batch(index).part(self.world.rank, self.world.size)

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
        epochs, within = self.parts.order.place(done)
        if done % self.config.log_every == 0 or at_end:
            self._log_step(done, result)
        if self.validation.is_due(epochs, within, at_end):
            self._validate(done)
        at_end = at_end or self.validation.why_stop() is not None
        saving = self.config.checkpoint
        by_epoch = within == 0 and saving.every_epochs > 0 and epochs % saving.every_epochs == 0
        by_step = saving.every_steps > 0 and done % saving.every_steps == 0
        if at_end or by_epoch or by_step:
            self._save(done)
        if self._signals.agreed(self.world) and not at_end:
            self._save(done)
            # A command that names a checkpoint would begin there again.
            how = "the same command again" if self.config.resume == "auto" else "it again with resume=auto"
            raise StoppedEarly(
                f"stopped by {self._signals.received or 'a signal on another rank'} after step {done} of {self.total}, "
                f"saved in {checkpoint_path(self.config.run, done)}: run {how} to go on"
            )

    def _save(self, done: int) -> None:
        # What a resumed run will not say again must be safe before the checkpoint is.
        self.log.flush()
        self.saving.save(done)

    def _log_step(self, done: int, result: StepResult) -> None:
        interval = self.meter.read()
        measured, signs = self.health.at_log(result, interval)
        speed = interval.clips / interval.elapsed_s
        self.log.write(
            {
                "step": done,
                "epoch": self.parts.order.epochs_at(done),
                "loss": result.loss,
                "accuracy": result.accuracy,
                "grad_norm": None if result.skipped else result.grad_norm,
                "loss_scale": result.scale,
                "temperature": result.temperature,
                "lr": result.learning_rate,
                "samples_per_s": speed,
                **measured,
            }
        )
        self.log.say(
            f"step {done}/{self.total}  loss {loss_words(result.loss)}  accuracy {result.accuracy:.3f}  "
            f"grad {result.grad_norm:.3g}  temperature {result.temperature:.4f}  lr {result.learning_rate:.2e}  "
            f"{speed:.0f} samples/s  waiting {measured['data_wait']:.0%}  communicating "
            f"{measured['communicating']:.0%}"
        )
        self.log.warn(done, signs)

    def _validate(self, done: int) -> None:
        metrics, value, best = self.validation.measure(done)
        self.log.write({"step": done, "epoch": self.parts.order.epochs_at(done), "validation": metrics})
        self.log.say(f"step {done}/{self.total}  validation {self.validation.metric} {value:.4g}")
        self.log.warn(done, self.health.at_validation(value))
        if best:
            self.saving.write(best_path(self.config.run), done, random_state(self.world.device))
        self.meter.restart()

    def _ending(self, done: int) -> str:
        best, why = self.validation.best, self.validation.why_stop()
        return (
            f"done: {done} steps"
            + (f" of {self.total}: {why}" if why and done < self.total else "")
            + ("" if best is None else f"; best {self.validation.metric} {best:.4g}")
            + f"; checkpoints in {checkpoint_path(self.config.run, 0).parent}"
        )

    def _dump(self, error: NonFiniteStep, index: int, random_state_N: torch.Tensor) -> RunFailed:
        """Save the state before the step that failed, so that it can be looked at, and say where."""
        names = self.parts.sources.video_names(error.video_ids)
        path = self.config.run / f"nonfinite-{index + 1:08d}.pt"
        failure = {"step": index, "what": error.what, "value": str(error.value), "videos": names}
        # The config's own path is relative to wherever the run was started.
        failure["store"] = str(self.config.store.resolve())
        self.saving.write(path, index, random_state_N, {"failure": failure})
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        return RunFailed(
            f"step {index + 1}: the {error.what} is {error.value}, expected a finite number; videos {shown}. "
            f"No weight was changed; the state before the step is in {path}: `python -m train replay {path}` says "
            "where the number arises. Look at these videos, lower optim.lr, or raise "
            "model.temperature.value (of a learned one minimum)"
        )
