"""Who makes batches ahead: a thread of this process, or worker processes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from train.delivery.arrays import BatchShape
from train.delivery.background import Answer, Background
from train.delivery.making import make
from train.delivery.ring import Ring, make_shared
from train.delivery.windows import WindowReader
from train.delivery.worker import Beginning, Request
from train.delivery.worker_process import WorkerProcess
from train.order import Selection

ReadyT = TypeVar("ReadyT")
ReadyT_co = TypeVar("ReadyT_co", covariant=True)
# From ring, slot and shape of a batch that is complete to what the training thread gets. Done ahead as well: the
# caches of the training thread are cold after a step, so that even making six tensors would take it long.
Finish = Callable[[Ring, int, BatchShape], ReadyT]


class Maker(Protocol[ReadyT_co]):
    """Makes batches in the slots of `ring`. Answers come in the order of asking."""

    ring: Ring

    def ask(self, slot: int, select: Callable[[], Selection]) -> None:
        """Have the batch made that `select` tells, in a slot that nobody uses."""
        ...

    def answer(self) -> ReadyT_co:
        """Wait for the next batch that was asked for. Raises, in its place, what making it raised."""
        ...

    def close(self) -> None:
        """End what makes batches; waits for it."""
        ...


class ThreadMaker(Generic[ReadyT]):
    """One thread of this process."""

    def __init__(
        self,
        readers: Sequence[WindowReader],
        first_ids: Sequence[int],
        slots: int,
        slot_bytes: int,
        finish: Finish[ReadyT],
    ) -> None:
        self.ring = Ring(slots, slot_bytes)
        self._readers, self._first_ids, self._finish = readers, first_ids, finish
        self._thread = Background("prefetch")
        self._asked: deque[Answer[ReadyT]] = deque()

    def ask(self, slot: int, select: Callable[[], Selection]) -> None:
        self._asked.append(self._thread.call(partial(self._make, slot, select)))

    def answer(self) -> ReadyT:
        return self._asked.popleft().get()

    def close(self) -> None:
        self._thread.close()
        self._asked.clear()

    def _make(self, slot: int, select: Callable[[], Selection]) -> ReadyT:
        return self._finish(self.ring, slot, make(select(), slot, self.ring, self._readers, self._first_ids))


class ProcessMaker(Generic[ReadyT]):
    """Worker processes, which take turns: the n-th batch is made by worker n mod N, so that answers come in order
    whoever is the fastest, and the same batches come whatever N is."""

    def __init__(
        self,
        readers: Sequence[WindowReader],
        first_ids: Sequence[int],
        slots: int,
        slot_bytes: int,
        finish: Finish[ReadyT],
        workers: int,
    ) -> None:
        """Start the processes, and let them open the stores meanwhile. What keeps them from it is their first answer.

        Raises EnvironmentLacking, RequestError where there is no memory to share.
        """
        self._readers, self._finish = readers, finish
        self._workers: list[WorkerProcess] = []
        # Threads, so that the training thread waits neither for a selection nor for what is to be done at the end.
        self._selecting, self._receiving = Background("select"), Background("receive")
        self._asked: deque[Answer[ReadyT]] = deque()
        self._asks = 0
        self.ring, memory = make_shared(slots, slot_bytes)
        beginning = Beginning(tuple(reader.opened for reader in readers), tuple(first_ids), slots, slot_bytes)
        try:
            for number in range(workers):
                self._workers.append(WorkerProcess(f"{number + 1} of {workers}", memory))
            for worker in self._workers:
                worker.begin(beginning)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(memory)

    def ask(self, slot: int, select: Callable[[], Selection]) -> None:
        worker = self._workers[self._asks % len(self._workers)]
        self._asks += 1
        sent = self._selecting.call(partial(self._send, worker, slot, select))
        self._asked.append(self._receiving.call(partial(self._receive, worker, slot, sent)))

    def answer(self) -> ReadyT:
        return self._asked.popleft().get()

    def close(self) -> None:
        self._selecting.close()
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            worker.join()
        self._receiving.close()
        # An error in an answer has this object in its traceback; the ring would stay until garbage is collected.
        self._asked.clear()

    def _send(self, worker: WorkerProcess, slot: int, select: Callable[[], Selection]) -> BatchShape:
        selection = select()
        self.ring.ask(slot, selection)
        clips, candidates = selection.choice_BK.shape
        worker.ask(Request(slot, selection.source, clips, candidates, selection.rows or 0, selection.tokens or 0))
        return self._readers[selection.source].shape_of(selection)

    def _receive(self, worker: WorkerProcess, slot: int, sent: Answer[BatchShape]) -> ReadyT:
        shape = sent.get()
        worker.answer()
        return self._finish(self.ring, slot, shape)
