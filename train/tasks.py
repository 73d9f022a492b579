"""What `train evaluate CONFIG` may be asked for: a config with a `task` of its own, as in configs/evaluate/."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from shared.config import Config, checked, load_config, merge_yaml
from shared.config_schema import nearest
from shared.errors import RequestError
from shared.fingerprint import canonical_json
from train import evaluate, probe
from train.config import FitConfig
from train.outputs import check_output, write_output
from train.retrieval import EvaluateConfig


class RetrievalConfig(Config):
    """task: what is measured. checkpoint: a run folder (its best one) or a .pt file. store, set, split: what it is
    tried on. evaluate: how retrieval is measured. out: the file that is written.
    """

    task: Literal["retrieval"]
    checkpoint: Path
    store: Path
    out: Path
    set: str = "default"
    split: str = "test"
    evaluate: EvaluateConfig = EvaluateConfig()


class _RunConfig(Config):
    """What evaluation takes of the config of a run: its folder, and how retrieval is measured. The rest, such as
    checkpoint.metric, was for training."""

    run: Path
    evaluate: EvaluateConfig = EvaluateConfig()


# Options of `train evaluate` for what a checkpoint decides otherwise.
_OPTIONS = {"store": "--store PATH", "set": "--set NAME", "val_split": "--split NAME", "train_split": "--split NAME"}


def run_settings(path: Path, overrides: Sequence[str]) -> tuple[Path, dict[str, Any]]:
    """The run folder that the config of a run names, and its EvaluateConfig.

    Raises RequestError for an override of anything else, which the checkpoint decides, and for a key that no run has.
    """
    merged = merge_yaml(path, overrides)
    for item in overrides:
        key = item.removeprefix("~").partition("=")[0]
        top = key.partition(".")[0]
        if top in _RunConfig.model_fields:
            continue
        if top not in FitConfig.model_fields:
            known = sorted(FitConfig.model_fields)
            raise RequestError(f"override {item!r}: {key} is no key of a run's config{nearest(top, known)}")
        meant = f"give {_OPTIONS[key]} instead" if key in _OPTIONS else "leave it out"
        raise RequestError(
            f"override {item!r} changes nothing: `evaluate` takes {key} from the checkpoint; {meant}. Only run and "
            "evaluate.* may be changed here"
        )
    idle = FitConfig.model_fields.keys() - _RunConfig.model_fields.keys()
    config = checked({key: value for key, value in merged.items() if key not in idle}, path, _RunConfig)
    return config.run, config.evaluate.model_dump()


TASKS: dict[str, type[Config]] = {"retrieval": RetrievalConfig, "linear_probe": probe.ProbeConfig}


def is_task(path: Path) -> bool:
    """Whether a config says what to measure; if not, it is one of `train fit`."""
    return "task" in merge_yaml(path, [])


def run_task(path: Path, overrides: Sequence[str]) -> str:
    """Measure what the config says, write the result as JSON; returns a table for the terminal."""
    name = merge_yaml(path, overrides)["task"]
    if name not in TASKS:
        raise RequestError(f"config {path}: task {name!r} is unknown; expected {' or '.join(TASKS)}")
    config = load_config(path, TASKS[str(name)], overrides)
    if isinstance(config, RetrievalConfig):
        return evaluate.table(_retrieval(config))
    assert isinstance(config, probe.ProbeConfig)
    check_output(config.out)
    result = probe.probe(config)
    write_output(config.out, canonical_json(result))
    return probe.table(result)


def _retrieval(config: RetrievalConfig) -> dict[str, Any]:
    return evaluate.evaluate(
        config.checkpoint,
        store=config.store,
        set_name=config.set,
        split=config.split,
        settings=config.evaluate.model_dump(),
        out=config.out,
    )
