"""What `train evaluate CONFIG` may be asked for: a config with a `task` of its own, as in configs/evaluate/."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from shared.config import Config, load_config, merge_yaml
from shared.errors import RequestError
from shared.fingerprint import canonical_json
from train import evaluate, probe
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
