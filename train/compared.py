"""What a comparison found, as values: for the table, the page and JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from train.similarities import Similarities

Curve = list[tuple[int, float]]


@dataclass(frozen=True)
class Compared:
    """One run. failure: why it has no numbers, or None.

    finished: whether its training ended well. checkpoint, step: what was evaluated. metrics: as in metrics.json.
    seconds: wall time of all its steps; peak_memory, peak_cuda: bytes; None where not measured. temperature: of that
    checkpoint. validation, loss: (step, value). level_step: the first validation that reached the level, None where
    none did.
    """

    name: str
    run: Path
    failure: str | None = None
    finished: bool = False
    checkpoint: str = ""
    step: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    peak_memory: int | None = None
    peak_cuda: int | None = None
    temperature: float = math.nan
    validation: Curve = field(default_factory=list)
    loss: Curve = field(default_factory=list)
    level_step: int | None = None
    similarities: Similarities | None = None


@dataclass(frozen=True)
class Level:
    """What `steps to a level` counts to. metric: as `text_to_video.R@10`."""

    metric: str
    value: float

    def __str__(self) -> str:
        return f"{self.metric} {self.value:.4g}"


@dataclass(frozen=True)
class Comparison:
    """store, set_name, split: what all were tried on. metric: of the curves. level: None where no run was validated."""

    store: Path
    set_name: str
    split: str
    metric: str
    level: Level | None
    runs: list[Compared]

    @property
    def good(self) -> list[Compared]:
        return [run for run in self.runs if run.failure is None]

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        level = None if self.level is None else {"metric": self.level.metric, "value": self.level.value}
        return {
            "store": str(self.store),
            "set": self.set_name,
            "split": self.split,
            "metric": self.metric,
            "level": level,
            "runs": [_plain(run) for run in self.runs],
        }


def _plain(run: Compared) -> dict[str, Any]:
    if run.failure is not None or run.similarities is None:
        return {"name": run.name, "run": str(run.run), "failure": run.failure}
    found = run.similarities
    return asdict(run) | {
        "run": str(run.run),
        "similarities": {
            "edges": [-1.0, 1.0],
            "positive": found.positive_H.tolist(),
            "negative": found.negative_H.tolist(),
            "positive_mean": found.positive_mean,
            "negative_mean": found.negative_mean,
        },
    }
