"""Where the time of extraction goes, by stage, and what a person can do about the slowest one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Literal

Stage = Literal["waiting", "model", "writing", "other"]
# Under this share of the CPUs given to decoders, more CPUs would be as idle.
_BUSY = 0.6
# What is shown with one digit is not told where it would read 0.0.
_TELLS = 0.05
# Shorter runs, in seconds, are mostly starting: what was slowest in them tells nothing of longer ones.
_SHORT_S = 60.0


@dataclass(frozen=True)
class Spent:
    """What work was done and what it took; adds up over videos, units and runs.

    videos: ended, well or badly. video_s: their length. waiting_s, model_s, writing_s: seconds in which extraction
    workers waited for frames, computed, wrote; elapsed_s: all their seconds. decode_cpu_s: CPU seconds of decoders, of
    videos that were decoded to their end.
    """

    videos: int = 0
    rows: int = 0
    video_s: float = 0.0
    waiting_s: float = 0.0
    model_s: float = 0.0
    writing_s: float = 0.0
    elapsed_s: float = 0.0
    decode_cpu_s: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    @property
    def slowest(self) -> str | None:
        """`decoding`, `model` or `writing`: what took most of the extraction workers' time. None without any."""
        stages = {"decoding": self.waiting_s, "model": self.model_s, "writing": self.writing_s}
        return max(stages, key=lambda stage: stages[stage]) if self.elapsed_s else None

    def share(self, seconds: float) -> float:
        """`seconds` as a part of all of the extraction workers' seconds, 0 to 1."""
        return seconds / self.elapsed_s if self.elapsed_s else 0.0


class Stopwatch:
    """Seconds by stage of one worker. Stages nest: the inner one's time is not the outer one's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stage: Stage = "other"
        self._since = clock()
        self._seconds: dict[Stage, float] = {"waiting": 0.0, "model": 0.0, "writing": 0.0, "other": 0.0}

    @contextmanager
    def during(self, stage: Stage) -> Iterator[None]:
        outer = self._switch(stage)
        try:
            yield
        finally:
            self._switch(outer)

    def spent(self) -> Spent:
        """The seconds until now."""
        self._switch(self._stage)
        seconds = self._seconds
        return Spent(
            waiting_s=seconds["waiting"],
            model_s=seconds["model"],
            writing_s=seconds["writing"],
            elapsed_s=sum(seconds.values()),
        )

    def _switch(self, stage: Stage) -> Stage:
        now, before = self._clock(), self._stage
        self._seconds[before] += now - self._since
        self._stage, self._since = stage, now
        return before


@dataclass(frozen=True)
class Setting:
    """Where units were done, as far as advice depends on it.

    cpus: those of decoders, None where only the cluster knows.
    """

    engine: Literal["ray", "here"]
    device: str
    cpus: int | None
    local_scratch: bool


def advice(spent: Spent, wall_s: float, setting: Setting) -> str:
    """The slowest stage and what helps against it, one line; empty when nothing was made."""
    if not spent.rows:
        return ""
    if wall_s < _SHORT_S:
        return "this run was too short to tell what is slowest"
    if spent.slowest == "decoding":
        return _for_decoding(spent, wall_s, setting)
    if spent.slowest == "model":
        part = f"the model took {spent.share(spent.model_s):.0%} of the extractors' time: it is the slowest stage; "
        return part + ("add GPUs" if setting.device == "cuda" else _more_compute(setting))
    if spent.slowest == "writing":
        part = f"writing shards took {spent.share(spent.writing_s):.0%} of the extractors' time: it is the slowest "
        helps = "the store's disk needs to be faster"
        if setting.engine == "ray" and not setting.local_scratch:
            helps = "let shards grow on a local disk (ray.scratch)"
        return f"{part}stage; {helps}"
    return ""


def _for_decoding(spent: Spent, wall_s: float, setting: Setting) -> str:
    share = f"{spent.share(spent.waiting_s):.0%}"
    if setting.engine == "here":
        return f"decoding took {share} of the time: it is the slowest stage; engine=ray decodes on several CPUs"
    part = f"extractors waited {share} of the time for frames: decoding is the slowest stage; "
    busy = spent.decode_cpu_s / wall_s
    if busy < _TELLS:
        return part + "look at the disk that the videos come from, and at what else this machine does"
    if setting.cpus is None:
        return part + f"add CPUs to the cluster (decoders kept {busy:.1f} busy)"
    if busy < _BUSY * setting.cpus:
        return part + (
            f"but decoders kept only {busy:.1f} of {setting.cpus} CPUs busy: let them work further ahead "
            "(ray.videos_ahead), or look at the disk that the videos come from"
        )
    return part + "add CPUs (ray.cpus, or hosts)"


def _more_compute(setting: Setting) -> str:
    if setting.engine == "here":
        return "engine=ray computes on several CPUs, device=cuda on a GPU"
    return "add CPUs and extraction workers (ray.cpus, ray.actors), or a GPU (device=cuda)"
