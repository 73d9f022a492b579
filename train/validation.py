"""Validation during training: the metric, whether it is the best so far, and whether it still gets better."""

from __future__ import annotations

from typing import Any

from shared.errors import RunFailed
from shared.store import open_store
from train.config import FitConfig
from train.data import WindowData
from train.distributed import broadcast_number
from train.divergence import explained, refuse_bad_weights
from train.early_stop import EarlyStop
from train.embedded import embed_split
from train.parts import Parts
from train.retrieval import higher_is_better, is_better, measure, metric_value


def validation_data(config: FitConfig) -> WindowData | None:
    """The held-out split, or None where the config wants no validation. Raises as WindowData does."""
    if config.val_split is None or config.eval_every == 0:
        return None
    reads = config.model.reads_embeddings
    store = open_store(config.store)
    return WindowData(store, config.set, config.val_split, stream=config.stream, config=config.data, embeddings=reads)


class Validation:
    """Measures the held-out split of a run. best: the best value of checkpoint.metric so far, or None."""

    def __init__(self, parts: Parts) -> None:
        self._parts, config = parts, parts.config
        self.metric = config.checkpoint.metric
        self.best: float | None = None
        self._stop = EarlyStop(config.stop, higher_is_better(self.metric))
        self._data = validation_data(config)

    def is_due(self, epochs: int, within: int, at_end: bool) -> bool:
        """After so many whole epochs and `within` steps of the next one."""
        if self._data is None:
            return False
        return at_end or (within == 0 and epochs % self._parts.config.eval_every == 0)

    def measure(self, done: int) -> tuple[dict[str, Any], float, bool]:
        """All metrics after `done` steps, the one that decides, and whether it is the best; all ranks call it.

        Raises RunFailed for weights or embeddings that are not finite.
        """
        assert self._data is not None
        model, world, config = self._parts.model, self._parts.world, self._parts.config.evaluate
        refuse_bad_weights(model, done, world)
        embedded = embed_split(model, self._data, world, config.batch_size, config.captions)
        try:
            metrics = measure(embedded, self._data, config, normalise=model.normalise)
        except RunFailed as error:
            raise explained(error, model, done, world) from None
        # Every rank measures the same embeddings, perhaps on another kind of device: all must decide alike.
        value = broadcast_number(metric_value(metrics, self.metric), world)
        self._stop.count(value)
        best = is_better(self.metric, value, self.best)
        if best:
            self.best = value
        return metrics, value, best

    def why_stop(self) -> str | None:
        """Why the run ends before its last step; None while it goes on."""
        if not self._stop.exhausted:
            return None
        return f"{self.metric} got no better in {self._stop.waited} validations, as many as stop.patience allows"

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "stop": self._stop.state_dict()}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        self.best = content["best"]
        self._stop.load_state_dict(content["stop"])
