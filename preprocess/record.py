"""The record of a run: hosts, times, counts, and what did not fit into memory. Beside the store's identity."""

from __future__ import annotations

import json
import os
import platform
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preprocess.meter import Setting, Spent, advice
from shared.atomic import replace_file
from shared.errors import Failure
from shared.fingerprint import is_sealed, sealed_json
from shared.store_files import read_file

if TYPE_CHECKING:  # `report` reads records and should not wait for torch
    from preprocess.extract.base import ExtractorSpec
    from preprocess.extract.runtime import ComputeOutOfMemory

_FOLDER = "runs"
_PACKAGES = ("clipmill", "torch", "decord2", "ray", "transformers", "numpy")


class RunRecord:
    """One run's file, `STORE/runs/<start>-<pid>.json`; written when memory runs out, and at the end.

    extracted: videos done in this run, in committed units. spent: what they took.
    copied_shards: shards taken over after a change of configuration. wall_s: seconds of extraction.
    """

    def __init__(self, store: Path, retry: str | None, setting: Setting) -> None:
        self.extracted = self.copied_shards = 0
        self.spent = Spent()
        self.wall_s = 0.0
        self._store, self._retry, self._setting = store, retry, setting
        self._started = datetime.now(UTC)
        self._out_of_memory: list[dict[str, object]] = []

    @property
    def path(self) -> Path:
        return self._store / _FOLDER / f"{self._started:%Y%m%dT%H%M%S%f}-{os.getpid()}.json"

    @property
    def advice(self) -> str:
        """The slowest stage of this run and what helps; empty when nothing was extracted."""
        return advice(self.spent, self.wall_s, self._setting)

    @contextmanager
    def kept_if_stopped(self) -> Iterator[None]:
        """Write the record of what was committed also when the block ends early."""
        done = False
        try:
            yield
            done = True
        finally:
            if not done and self.extracted:
                self._write({"ended": datetime.now(UTC).isoformat(), "stopped": True})

    def out_of_memory(self, fingerprint: str, signal: ComputeOutOfMemory, batch_size: int) -> None:
        """Note that the stream of this fingerprint did not fit and is made with `batch_size` clips per call instead.

        Written at once: the next run must not meet the same wall, whatever becomes of this one.
        """
        self._out_of_memory.append(
            {
                "stream": signal.stream,
                "fingerprint": fingerprint,
                "batch_size": signal.batch_size,
                "instead": batch_size,
                "memory_summary": signal.memory_summary,
            }
        )
        self._write({"ended": None})

    def end(self, inputs: int, failures: Sequence[Failure], specs: dict[str, ExtractorSpec]) -> None:
        self._write(
            {
                "ended": datetime.now(UTC).isoformat(),
                "inputs": inputs,
                "failures": dict(sorted(Counter(failure.reason for failure in failures).items())),
                "extractors": {name: spec.environment for name, spec in sorted(specs.items())},
            }
        )

    def _write(self, content: dict[str, object]) -> None:
        self.path.parent.mkdir(exist_ok=True)
        common: dict[str, object] = {
            "started": self._started.isoformat(),
            "host": socket.gethostname(),
            "machine": platform.platform(),
            "cpus": len(os.sched_getaffinity(0)),
            "retry_failed": self._retry,
            "extracted": self.extracted,
            "copied_shards": self.copied_shards,
            "spent": asdict(self.spent),
            "wall_s": self.wall_s,
            "advice": self.advice,
            "out_of_memory": self._out_of_memory,
            "versions": {name: version(name) for name in _PACKAGES},
        }
        replace_file(self.path, sealed_json(common | content))


def sizes_that_fit(store: Path) -> dict[str, int]:
    """For fingerprints of streams that did not fit into memory in an earlier run: the clips per call used instead.

    Damaged records are passed over, `verify` reports them: without them the wall is met again, nothing else changes.
    """
    sizes: dict[str, int] = {}
    for record in read_records(store):
        for event in record.get("out_of_memory", ()):
            sizes[event["fingerprint"]] = event["instead"]
    return sizes


def read_records(store: Path) -> list[dict[str, Any]]:
    """The records of a store's runs, oldest first; damaged ones are passed over (`verify` reports them)."""
    return [record for path in sorted((store / _FOLDER).glob("*.json")) if (record := _sealed(path))]


def _sealed(path: Path) -> dict[str, Any]:
    try:
        data = read_file(path)
        content = json.loads(data)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) and is_sealed(content, data) else {}
