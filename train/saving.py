"""What a run saves, and what it goes on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from shared.errors import RequestError
from train.checkpoint import (
    FOLDER,
    checkpoint_path,
    differences,
    drop_old,
    drop_unfinished,
    gather_random_states,
    last_checkpoint,
    load_checkpoint,
    random_state,
    restore_random_state,
    save_checkpoint,
    set_aside,
)
from train.checkpoint_content import check_content, check_moments, check_step, content_fits
from train.distributed import broadcast_seed
from train.health import Health
from train.parts import Parts
from train.seen import changed_data, in_words
from train.sharded_state import full_state, load_full_state, load_whole_model, whole_model
from train.step import TrainStep
from train.streams import Purpose, begin_stream
from train.validation import Validation


class Saving:
    """The checkpoints of a run; all ranks call everything here, rank 0 writes."""

    def __init__(self, parts: Parts, step: TrainStep, validation: Validation, health: Health) -> None:
        self._parts, self._step, self._validation, self._health = parts, step, validation, health
        self._saved_step = -1

    def save(self, done: int) -> None:
        """The numbered checkpoint after `done` steps, once."""
        if done == self._saved_step:
            return
        self.write(checkpoint_path(self._parts.config.run, done), done, random_state(self._parts.world.device))
        if self._parts.world.is_main:
            drop_old(self._parts.config.run, self._parts.config.checkpoint.keep, done)
        self._saved_step = done

    def write(self, path: Path, done: int, random_state_N: torch.Tensor, more: dict[str, Any] | None = None) -> None:
        """The run's state after `done` steps. random_state_N: of this rank's generators. more: further plain values."""
        content = self._content(done, random_state_N) | (more or {})
        if self._parts.world.is_main:
            save_checkpoint(path, content)

    def resume(self) -> tuple[int, list[str]]:
        """The number of steps that are done already, and what to tell people; all parts are as they were then.

        Raises RequestError for a checkpoint of another run, and where ranks find different ones.
        """
        config, world = self._parts.config, self._parts.world
        # Dropout differs between ranks, the weights do not.
        begin_stream(config.seed, Purpose.DROPOUT, world.rank)
        path = self._path()
        done, said = self._load(path) if path is not None else (0, [])
        if broadcast_seed(done, world) != done:
            raise RequestError(
                f"rank {world.rank} finds {done} steps done in {config.run}, rank 0 another number: "
                "the run folder must be on a file system that all ranks share"
            )
        if world.is_main:
            said += self._tidy(done)
        return done, said

    def _tidy(self, done: int) -> list[str]:
        """Leave no file of a killed process and none that `resume=auto` would take for this run's; what was moved."""
        run = self._parts.config.run
        drop_unfinished(run)
        left = set_aside(run, done)
        if not left:
            return []
        return [
            f"checkpoints of more steps are of a branch that is left; kept as {', '.join(one.name for one in left)}"
        ]

    def _content(self, done: int, random_state_N: torch.Tensor) -> dict[str, Any]:
        """Every rank calls it, because every rank's generators are in it, and its share of what is spread."""
        parts = self._parts
        return {
            "model": whole_model(parts.model, parts.world),
            "optimizer": full_state(parts.optimizer, parts.world),
            "step": self._step.state_dict(),
            "negatives": None if parts.negatives is None else parts.negatives.state_dict(),
            "order": parts.order.state(done),
            "random": gather_random_states(random_state_N, parts.world),
            "config": parts.config.model_dump(mode="json"),
            "identity": parts.identity(),
            "input_dim": parts.data.input_dim,
            "tokenizer": parts.data.manifest.info.tokenizer,
            "embeddings": parts.data.embedding_kind,
            "stream": {
                "name": parts.data.stream.name,
                "fingerprint": parts.data.stream.fingerprint,
                "identity": parts.data.stream.entry.identity,
            },
            "further_streams": parts.data.further_kinds,
            "validation": self._validation.state_dict(),
            "health": self._health.state_dict(),
        }

    def _path(self) -> Path | None:
        run, resume = self._parts.config.run, self._parts.config.resume
        if resume not in ("auto", "never"):
            return _named(Path(resume))
        last = last_checkpoint(run)
        if resume == "never" and last is not None:
            raise RequestError(
                f"resume=never, but run folder {run} holds {last.name} of an earlier run: give another folder with "
                "run=PATH, or delete this one"
            )
        return last

    def _load(self, path: Path) -> tuple[int, list[str]]:
        parts, content = self._parts, load_checkpoint(path)
        check_content(content, path, resumable=True)
        restore_parts(
            parts, content, path, "set these back, with the store as it was, or start anew with another run=PATH"
        )
        check_step(content, path, parts.total)
        with content_fits(path):
            self._step.load_state_dict(content["step"])
            self._validation.load_state_dict(content["validation"])
            self._health.load_state_dict(content["health"])
            same_ranks = restore_random_state(content["random"], parts.world)
        done = int(content["order"]["step"])
        self._saved_step = done
        said = [f"resuming from {path} after step {done}"]
        if not same_ranks:
            begin_stream(parts.config.seed, Purpose.RESUMED, parts.world.rank, done)
            said.append("the checkpoint is of another world size: same batches, but dropout draws anew")
        return done, said


def restore_parts(parts: Parts, content: dict[str, Any], path: Path, advice: str) -> None:
    """Set model, optimizer and negatives to a checkpoint's.

    Raises RequestError, ending in `advice`, when it was made under another configuration or store; InputFileError for
    what does not fit all the same.
    """
    with content_fits(path):
        changed = in_words(differences(content["identity"], parts.identity()))
        changed += changed_data(content, parts.order.identity, parts.sources, told=bool(changed))
    if changed:
        raise RequestError(
            f"checkpoint {path} was made under another configuration or store:\n  "
            + "\n  ".join(changed)
            + f"\n{advice}"
        )
    with content_fits(path):
        load_whole_model(parts.model, content["model"], parts.world)
        check_moments(parts.optimizer, content["optimizer"])
        load_full_state(parts.optimizer, content["optimizer"], parts.world)
        if parts.negatives is not None:
            parts.negatives.load_state_dict(content["negatives"], parts.model)


def _named(given: Path) -> Path:
    """The checkpoint that resume=PATH means: a file, or of a run folder the last one."""
    if not given.is_dir() or not (given / FOLDER).is_dir():
        return given
    last = last_checkpoint(given)
    if last is None:
        raise RequestError(f"resume={given}: this run folder has no checkpoint; give another, or a .pt file")
    return last
