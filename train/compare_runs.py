"""The runs of a comparison: which they are, training those that are not trained yet, and what that took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from shared.config import Config, is_override, load_config
from shared.errors import DamageFound, RequestError, StoppedEarly
from shared.explain import first_fault, why_unreadable
from shared.fingerprint import canonical_json
from train.checkpoint import differences, last_checkpoint, load_checkpoint
from train.config import FitConfig
from train.evaluate import config_of
from train.measured_fit import Outcome, Part
from train.outputs import write_output
from train.stopping import EXIT_FILE

COST_FILE = "cost.json"
_YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class Entry:
    """One config of a comparison. name: of its row."""

    name: str
    path: Path
    config: FitConfig


class Cost(Config):
    """cost.json of a run folder: what each process took that trained a part of it, in order."""

    parts: tuple[Part, ...] = ()

    def seconds(self, steps: int) -> float | None:
        """Wall time of the first `steps` steps; None where some were trained by a process that was not measured."""
        parts = [part for part in self.parts if part.first < part.last]
        ends = [0, *(part.last for part in parts)]
        whole = ends[-1] == steps and all(part.first == end for part, end in zip(parts, ends, strict=False))
        return sum(part.seconds for part in parts) if whole else None

    def peak(self, name: str) -> int | None:
        """The largest `peak_memory` or `peak_cuda` of any part, bytes; None where none was measured."""
        found = [value for part in self.parts if (value := getattr(part, name)) is not None]
        return max(found, default=None)


def open_entries(arguments: Sequence[str], runs: Path | None) -> list[Entry]:
    """The configs and overrides of a command line.

    arguments: config files, folders (all `.yaml` of them by name), and key=value for all of them. runs: a folder; the
    run folders are then in it, named as the configs. Raises RequestError for what is wrong with any of them.
    """
    configs = [argument for argument in arguments if not is_override(argument) or os.path.exists(argument)]  # noqa: PTH110  (of a name that is too long says False)
    overrides = [argument for argument in arguments if argument not in configs]
    paths = [path for argument in configs for path in _yaml_files(Path(argument))]
    if not paths:
        raise RequestError("no config was given; give files or a folder of them, as configs/train/compare")
    names = [path.stem for path in paths]
    entries = [_entry(path, names, overrides, runs) for path in paths]
    _refuse_shared_folders(entries)
    return entries


def _yaml_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix in _YAML)
    if not found:
        raise RequestError(f"folder {path} holds no {' or '.join(_YAML)} file; give a folder of configs, or files")
    return found


def _entry(path: Path, names: list[str], overrides: list[str], runs: Path | None) -> Entry:
    config = load_config(path, FitConfig, overrides)
    name = path.stem if names.count(path.stem) == 1 else str(path)
    if config.resume not in ("auto", "never"):
        raise RequestError(
            f"{path} has resume={config.resume}: a comparison goes on from each run's own folder, and could not say "
            "what the steps before took; set resume=auto"
        )
    if runs is not None:
        config = config.model_copy(update={"run": runs / path.stem})
    return Entry(name, path, config)


def _refuse_shared_folders(entries: list[Entry]) -> None:
    owner: dict[str, Entry] = {}
    for entry in entries:
        other = owner.setdefault(os.path.realpath(entry.config.run), entry)
        if other is not entry:
            raise RequestError(
                f"{other.path} and {entry.path} have the same run folder {entry.config.run}: the second would go on "
                "from the first; give each its own `run`, and --runs FOLDER instead of an override run=PATH"
            )


def train_missing(entries: Sequence[Entry]) -> dict[str, str]:
    """Train, one after another, every run that has not ended well yet; the names of those that failed and why.

    Raises StoppedEarly where one was stopped: the same command goes on.
    """
    failed = {}
    for number, entry in enumerate(entries, start=1):
        title = f"[{number}/{len(entries)}] {entry.name}"
        try:
            message = _train_missing(entry, title)
        except (DamageFound, RequestError) as error:
            message = str(error)
        if message is not None:
            print(f"{title}: failed: {message}", flush=True)
            failed[entry.name] = message
    return failed


def _train_missing(entry: Entry, title: str) -> str | None:
    if is_trained(entry):
        print(f"{title}: trained already, in {entry.config.run}", flush=True)
        return None
    print(f"{title}: training in {entry.config.run}", flush=True)
    return _train(entry)


def is_trained(entry: Entry) -> bool:
    """Whether `train fit` of this very config has ended well in its run folder."""
    try:
        ended = json.loads((entry.config.run / EXIT_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    well = isinstance(ended, dict) and ended.get("code") == 0 and last_checkpoint(entry.config.run) is not None
    return well and not changed_since(entry)


def changed_since(entry: Entry) -> list[str]:
    """What the config says otherwise than the last checkpoint of its run folder, one line a key.

    Raises RequestError where there is none, InputFileError and DamageFound for a file that is no whole checkpoint.
    """
    last = last_checkpoint(entry.config.run)
    if last is None:
        raise RequestError(f"run folder {entry.config.run} has no checkpoint: leave --no-train out, or train it first")
    return differences(config_of(load_checkpoint(last), last).identity(), entry.config.identity())


def read_cost(run: Path) -> Cost:
    """What training took so far; nothing where it was not measured. Raises DamageFound for a file that was changed."""
    path = run / COST_FILE
    try:
        return Cost.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return Cost()
    except (OSError, ValidationError) as error:
        why = first_fault(error) if isinstance(error, ValidationError) else why_unreadable(error)
        raise DamageFound(
            f"{path} is not what `train compare` wrote: {why}; it holds nothing but times and peaks of memory: move it "
            "away"
        ) from None


def _train(entry: Entry) -> str | None:
    """Train in a process of its own; what went wrong, or None."""
    before = read_cost(entry.config.run)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outcome.json"
        command = [sys.executable, "-m", "train.measured_fit", str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            interrupted = _wait(process, entry.config.model_dump_json().encode())
        outcome = Outcome.model_validate_json(path.read_bytes()) if path.exists() else None
    if outcome is not None and entry.config.run.is_dir():
        cost = Cost(parts=(*before.parts, outcome.part))
        write_output(entry.config.run / COST_FILE, canonical_json(cost.model_dump(mode="json")))
    code = process.returncode
    if interrupted or code == StoppedEarly.exit_code:
        said = "interrupted; run the same command again to go on" if outcome is None else outcome.message
        raise StoppedEarly(f"{entry.name}: {said}")
    if outcome is None:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"training ended with {how} and said no more; what it printed stands above"
    return outcome.message if outcome.code else None


def _wait(process: subprocess.Popen[bytes], config: bytes) -> bool:
    """Until the process has ended; whether this one was interrupted meanwhile, which the other is told, too."""
    try:
        process.communicate(config)
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        return True
    return False
