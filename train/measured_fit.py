"""`python -m train.measured_fit OUTCOME`: one training run in a process of its own, with what it took.

Reads the configuration as JSON from standard input. It is a program of its own because a peak of memory belongs to a
process: two runs in one would share theirs.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from pathlib import Path

from shared.config import Config

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


class Part(Config):
    """What one process took for the steps from `first` to `last` of a run.

    seconds: inside `fit`, validations and checkpoints included, imports not. peak_memory: bytes of this process, its
    data workers not counted; null where the system does not tell. peak_cuda: bytes that torch held on the GPU, null
    without one.
    """

    first: int
    last: int
    seconds: float
    peak_memory: int | None
    peak_cuda: int | None


class Outcome(Config):
    """How the run ended. code, message: as in exit.json."""

    code: int
    message: str
    part: Part


def main(outcome: Path) -> int:
    """Train as the configuration says; returns the exit code that `train fit` would have. What went wrong is told in
    the outcome alone, for the comparison to say."""
    from shared.errors import ClipmillError
    from shared.interrupts import held_interrupts

    with held_interrupts():
        from train.config import FitConfig
        from train.loop import fit

    config = FitConfig.model_validate_json(sys.stdin.read())
    first, begin = _steps_done(config.run), time.perf_counter()
    code, message = 0, "done"
    try:
        fit(config)
    except ClipmillError as error:
        code, message = error.exit_code, str(error)
    part = Part(
        first=first,
        last=_steps_done(config.run),
        seconds=time.perf_counter() - begin,
        peak_memory=_peak_memory(),
        peak_cuda=_peak_cuda(),
    )
    outcome.write_text(Outcome(code=code, message=message, part=part).model_dump_json(), encoding="utf-8")
    return code


def _steps_done(run: Path) -> int:
    from train.checkpoint import last_checkpoint, step_of

    last = last_checkpoint(run)
    return 0 if last is None else step_of(last)


def _peak_memory() -> int | None:
    """Bytes. Not `ru_maxrss`, which begins with the peak of the process that started this one."""
    try:
        found = _PEAK.search(Path("/proc/self/status").read_text(encoding="utf-8"))
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024


def _peak_cuda() -> int | None:
    import torch

    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None


if __name__ == "__main__":
    # As in `python -m train`: until `fit` listens itself, SIGTERM ends this as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main(Path(sys.argv[1])))
    except KeyboardInterrupt:
        sys.exit(4)
