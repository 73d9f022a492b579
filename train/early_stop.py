"""When a run ends before its last step, because its validation gets no better."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from shared.config import Config


class StopConfig(Config):
    """patience: validations in a row without an improvement after which the run ends.

    min_delta: by how much checkpoint.metric must pass the best so far to count as one.
    """

    patience: int = Field(ge=1)
    min_delta: float = Field(default=0.0, ge=0)


class EarlyStop:
    """Counts validations without an improvement. config: None never stops, and counts all the same.

    higher: whether more is better. waited: validations since the last improvement.
    """

    def __init__(self, config: StopConfig | None, higher: bool) -> None:
        self._config, self._sign = config, 1.0 if higher else -1.0
        self._best: float | None = None
        self.waited = 0

    def count(self, value: float) -> None:
        """One more validation. An improvement that is too small does not move what the next ones are compared with."""
        least = self._config.min_delta if self._config is not None else 0.0
        if self._best is None or self._sign * (value - self._best) > least:
            self._best, self.waited = value, 0
        else:
            self.waited += 1

    @property
    def exhausted(self) -> bool:
        return self._config is not None and self.waited >= self._config.patience

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best, "waited": self.waited}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        self._best, self.waited = content["best"], content["waited"]
