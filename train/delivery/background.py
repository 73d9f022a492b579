"""A thread that runs calls in the background, and costs whoever asks next to nothing.

A `ThreadPoolExecutor` makes the asking thread wait for locks that the working one holds, each time as long as a batch
takes to be made: with steps of 10 ms that was half of all the waiting for data. SimpleQueue is one C call, which keeps
the interpreter, and which no signal handler can interrupt half-way.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

ResultT = TypeVar("ResultT")
# Seconds that the end of a program, or of a forgotten object, waits for the call that is running.
_PATIENCE_S = 5.0


class Answer(Generic[ResultT]):
    """What a call will give."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def set(self, result: ResultT | None, error: BaseException | None = None) -> None:
        self._queue.put((result, error))

    def get(self) -> ResultT:
        """Wait for it, once. Raises what the call raised."""
        result: ResultT
        result, error = self._queue.get()
        if error is not None:
            try:
                raise error
            finally:
                # Its traceback has this frame, which must not have it: the two would keep all frames of the call.
                del error
        return result


class _Call(NamedTuple):
    run: Callable[[], Any]
    answer: Answer[Any]


class Background:
    """Calls run one after another, in the order of asking, until `close`, or the end of this object or of the program.

    For the process that made it: a fork has the object, but not its thread.
    """

    def __init__(self, name: str) -> None:
        self._name, self._process = name, os.getpid()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        # A daemon: the interpreter would wait for it before anything could tell it to end.
        self._thread = threading.Thread(target=_work, args=(self._calls,), name=name, daemon=True)
        # Not a method: the thread must not be what keeps this object alive.
        self._end = weakref.finalize(self, _end, self._calls, self._thread, self._process)
        self._thread.start()

    def call(self, run: Callable[[], ResultT], answer: Answer[ResultT] | None = None) -> Answer[ResultT]:
        """Have it run. answer: where its result goes, if not to a new one. Raises RuntimeError after `close`, and in
        another process."""
        if os.getpid() != self._process:
            raise RuntimeError(
                f"the {self._name} thread is that of process {self._process}, of which {os.getpid()} is a fork: make "
                "the loader in the process that uses it"
            )
        if not self._end.alive:
            raise RuntimeError(f"the {self._name} thread has ended, as its loader was closed")
        answer = Answer() if answer is None else answer
        self._calls.put(_Call(run, answer))
        return answer

    def close(self) -> None:
        """Drop the calls that were not begun, and wait for the one that is running."""
        if os.getpid() == self._process:
            self._end()
            self._thread.join()


def _work(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        try:
            result, error = call.run(), None
        except BaseException as raised:  # noqa: BLE001  (raised again where the answer is asked for)
            result, error = None, raised
        call.answer.set(result, error)
        # Nothing of a call is held while waiting for the next.
        del call, result, error


def _end(calls: SimpleQueue[_Call | None], thread: threading.Thread, process: int) -> None:
    if os.getpid() != process:
        return
    with suppress(Empty):
        while (call := calls.get_nowait()) is not None:
            call.answer.set(None, RuntimeError("closed before this was begun"))
    calls.put(None)
    if thread is not threading.current_thread():
        thread.join(_PATIENCE_S)
