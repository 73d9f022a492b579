"""A worker process as the training process sees it: how it is started, spoken to, and told from a dead one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from socket import SHUT_RDWR, socket
from typing import Any

from shared.errors import ClipmillError, RunFailed
from train.delivery.worker import DONE, Beginning, Request

# As this process finds modules, so must the worker: `shared` and `train` are common names.
_PROGRAM = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from train.delivery.worker import main
main(int(sys.argv[2]), int(sys.argv[3]))
"""
# What asks the training process to stop; it may still want the batch that is being made.
_STOPS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1}
# Copying and looking up is all that a worker does; threads of a linear algebra library would only be started.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# A worker that nobody asks any more ends within a batch; one that a file system holds up is not waited for.
_PATIENCE_S = 5.0
_HINTS: dict[int, str] = {
    signal.SIGKILL: "the system does that where memory runs out (its log says so): lower data.workers or data.prefetch",
    signal.SIGBUS: "a file of the store was cut while it was mapped: run `verify` on the store, then `repair`",
}


class WorkerProcess:
    """One worker, which runs until it is dismissed or this process ends, however it ends."""

    def __init__(self, name: str, memory: int) -> None:
        """Start a fresh interpreter: a fork would copy locks that other threads hold, and what CUDA has open.

        memory: descriptor of the ring's memory, which the worker inherits.
        """
        self._name, self._owner = name, os.getpid()
        # What the worker could not do, and ended with.
        self._last_words: ClipmillError | None = None
        self._channel, other = Pipe()
        command = [sys.executable, "-P", *(f"-W{option}" for option in sys.warnoptions)]
        command += ["-c", _PROGRAM, json.dumps([str(path) for path in sys.path]), str(other.fileno()), str(memory)]
        try:
            with _blocked(_STOPS):
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    pass_fds=(other.fileno(), memory),
                    env=os.environ | _ONE_THREAD,
                )
        finally:
            # With this end open here, too, the death of the worker would not close the channel.
            other.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, beginning: Beginning) -> None:
        """Tell the worker what it needs to know before the first request."""
        with suppress(ConnectionError):
            self._channel.send(beginning)

    def ask(self, request: Request) -> None:
        """Ask for a batch; a dead worker for nothing, since what it did before it died has still to be heard."""
        with suppress(ConnectionError):
            self._channel.send_bytes(request.pack())

    def answer(self) -> None:
        """Wait until the next batch is made. Raises the ClipmillError that came instead, RunFailed where the worker is
        dead."""
        error: ClipmillError | None = None
        try:
            if self._channel.recv_bytes() != DONE:
                error = self._channel.recv()
        except (EOFError, ConnectionError):
            raise self._death() from None
        if error is not None:
            self._last_words = error
            raise error

    def dismiss(self) -> None:
        """Tell the worker that nobody asks any more, and a thread that waits for its answer that none comes."""
        if os.getpid() != self._owner:
            return  # a fork has the channel, too, and must not end what its parent uses
        # Closing it would leave that thread waiting.
        with socket(fileno=os.dup(self._channel.fileno())) as channel, suppress(OSError):
            channel.shutdown(SHUT_RDWR)

    def join(self) -> None:
        """Wait until the worker that was dismissed has ended."""
        if os.getpid() != self._owner:
            return
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._channel.close()

    def _death(self) -> ClipmillError:
        code = self._process.wait()
        if code == 0 and self._last_words is not None:
            return self._last_words
        number = signal.Signals(-code) if -code in set(signal.Signals) else None
        how = f"was killed by {number.name if number else f'signal {-code}'}" if code < 0 else f"ended with code {code}"
        hint = _HINTS.get(-code, "the system's log may say why" if code < 0 else "its own message is above")
        return RunFailed(
            f"data worker {self._name} (process {self.pid}) {how}: {hint}. Run the same command again to go on from "
            "the last checkpoint"
        )


@contextmanager
def _blocked(signals: set[signal.Signals]) -> Iterator[None]:
    """Signals that wait in this thread; a process that is started meanwhile never gets them."""
    before: Any = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
