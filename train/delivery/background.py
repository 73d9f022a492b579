"""Threads that run calls in the background, and cost whoever asks next to nothing.

A `ThreadPoolExecutor` makes the asking thread wait for locks that the working one holds, each time as long as a batch
takes to be made: with steps of 10 ms that was half of all the waiting for data. SimpleQueue is one C call, which keeps
the interpreter.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeVar

ResultT = TypeVar("ResultT")
# Seconds between looks whether the program is about to end.
_LOOK_EVERY = 1.0


class Answer(Generic[ResultT]):
    """What a call will give."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[ResultT | None, BaseException | None]] = SimpleQueue()

    def set(self, result: ResultT | None, error: BaseException | None) -> None:
        self._queue.put((result, error))

    def get(self) -> ResultT:
        """Wait for it, once. Raises what the call raised."""
        result, error = self._queue.get()
        if error is not None:
            try:
                raise error
            finally:
                # Its traceback has this frame, which must not have it: the two would keep all frames of the call.
                del error
        return result  # type: ignore[return-value]


class _Call(NamedTuple):
    run: Callable[[], object]
    answer: Answer[object]


class Background:
    """Calls are begun in the order of asking. The threads end with `close`, with this object, or with the program."""

    def __init__(self, name: str, threads: int = 1) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=_work, args=(self._calls,), name=f"{name} {number}") for number in range(threads)
        ]
        # Not a method: a thread must not be what keeps this object alive.
        self._end = weakref.finalize(self, _end, self._calls, threads)
        self._end.atexit = False
        for thread in self._threads:
            thread.start()

    def call(self, run: Callable[[], ResultT]) -> Answer[ResultT]:
        """Have it run. Raises RuntimeError after `close`."""
        if not self._end.alive:
            raise RuntimeError(f"{self._threads[0].name} was closed; nothing more can be asked of it")
        answer: Answer[ResultT] = Answer()
        self._calls.put(_Call(run, answer))  # type: ignore[arg-type]
        return answer

    def close(self) -> None:
        """Drop the calls that were not begun, and wait for those that were."""
        self._end()
        for thread in self._threads:
            thread.join()


def _work(calls: SimpleQueue[_Call | None]) -> None:
    while True:
        try:
            call = calls.get(timeout=_LOOK_EVERY)
        except Empty:
            # The interpreter waits for its threads before it ends, and would wait for ever where nobody closes.
            if not threading.main_thread().is_alive():
                return
            continue
        if call is None:
            return
        try:
            result, error = call.run(), None
        except BaseException as raised:  # noqa: BLE001  (raised again where the answer is asked for)
            result, error = None, raised
        call.answer.set(result, error)
        # Nothing of a call is held while waiting for the next.
        del call, result, error


def _end(calls: SimpleQueue[_Call | None], threads: int) -> None:
    with suppress(Empty):
        while True:
            call = calls.get_nowait()
            if call is not None:
                call.answer.set(None, RuntimeError("closed before this was begun"))
    for _ in range(threads):
        calls.put(None)
