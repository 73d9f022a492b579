"""How a run ends: on a signal, together on all ranks, and with its exit code in a file that torchrun cannot hide."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch.distributed as dist

from shared.atomic import fsync_directory, write_new_file
from shared.config import merge_yaml
from shared.errors import ClipmillError, RequestError, RunFailed, StoppedEarly
from shared.fingerprint import canonical_json
from shared.store import refuse_inside_store
from train.distributed import World, any_rank, environment_rank
from train.run_lease import is_others, run_lease

EXIT_FILE = "exit.json"
_INTERRUPTED = "interrupted before the next step; run the same command again to go on from the last checkpoint"
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopSignals:
    """SIGTERM, SIGUSR1 and SIGINT are remembered instead of ending the process; a second SIGINT interrupts at once.

    A context manager for the main thread. received: the name of the first one, or None.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._before: dict[signal.Signals, Any] = {}

    def agreed(self, world: World) -> bool:
        """Whether any rank has received one; every rank calls it and gets the same answer."""
        return any_rank(self.received is not None, world)

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._remember) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGINT and self.received is not None:
            raise KeyboardInterrupt
        self.received = self.received or signal.Signals(number).name


@contextmanager
def recorded_exit(run: Path) -> Iterator[None]:
    """Leave `exit.json` in the run folder, whatever happens inside: {"code", "message", "rank"}.

    The first rank that fails is the one that is recorded, since the others then fail of its absence. Rank 0 has the
    folder's lease meanwhile. Raises RequestError when the folder cannot be made or written to, and, with nothing there
    touched, when another job has it.
    """
    rank = environment_rank()
    try:
        run.mkdir(parents=True, exist_ok=True)
        write_new_file(_temporary(run, rank), b"")
        _temporary(run, rank).unlink()
    except OSError as error:
        raise RequestError(
            f"run folder {run} cannot be made or written to: {error}; give another with run=PATH"
        ) from None
    with run_lease(run, rank):
        if rank == 0:
            (run / EXIT_FILE).unlink(missing_ok=True)
        with _failures_recorded(run, rank):
            yield
        if rank == 0:
            _record(run, rank, 0, "done")


@contextmanager
def _failures_recorded(run: Path, rank: int) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        _record(run, rank, StoppedEarly.exit_code, _INTERRUPTED)
        raise StoppedEarly(_INTERRUPTED) from None
    except ClipmillError as error:
        _record(run, rank, error.exit_code, str(error))
        raise
    except BaseException as error:
        _record(run, rank, 1, f"{type(error).__name__}: {error}")
        raise


@contextmanager
def recorded_refusal(config: Path, overrides: Sequence[str]) -> Iterator[None]:
    """Under torchrun, whose exit code says nothing, leave `exit.json` for a config that is refused, too, where it says
    which its run folder is."""
    try:
        yield
    except RequestError:
        run = _run_folder(config, overrides) if "RANK" in os.environ else None
        if run is None or is_others(run):
            raise
        with recorded_exit(run):
            raise


def _run_folder(config: Path, overrides: Sequence[str]) -> Path | None:
    try:
        run = merge_yaml(config, overrides).get("run")
        if not isinstance(run, str) or not run:
            return None
        refuse_inside_store(Path(run), "the run folder (run=PATH)")
    except RequestError:
        return None
    return Path(run)


@contextmanager
def lost_rank_fails(timeout_s: float) -> Iterator[None]:
    """Turn what a collective raises when another rank is gone, or did not come within `timeout_s`, into RunFailed."""
    try:
        yield
    except RuntimeError as error:
        # gloo raises plain RuntimeErrors that only their text tells from others.
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        late = f", or did not come within timeout_s={timeout_s:g}" if "imed out" in str(error) else ""
        raise RunFailed(
            f"another rank is gone{late}: {str(error).splitlines()[0]}; its own message is above or in its log. Run "
            "the same command again to go on from the last checkpoint"
        ) from error


def _temporary(run: Path, rank: int) -> Path:
    # With the process, as another job may be about to be refused here.
    return run / f".{EXIT_FILE}.{rank}.{os.getpid()}"


def _record(run: Path, rank: int, code: int, message: str) -> None:
    """Write how the run ended, unless another rank did; where that cannot be, the run still ends as it would have."""
    temporary = _temporary(run, rank)
    try:
        # A rank that is left over from a job that was refused, or whose first rank is gone.
        if rank != 0 and is_others(run):
            return
        write_new_file(temporary, canonical_json({"code": code, "message": message, "rank": rank}))
        # A link, unlike a rename, refuses a name that another rank has already taken.
        os.link(temporary, run / EXIT_FILE)
        fsync_directory(run)
    except FileExistsError:
        pass
    except (OSError, ClipmillError) as error:
        print(f"{run / EXIT_FILE} cannot be written: {error}", file=sys.stderr, flush=True)
    finally:
        temporary.unlink(missing_ok=True)
