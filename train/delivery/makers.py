"""Who makes batches ahead: a thread of this process, or worker processes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from train.delivery.arrays import BatchShape
from train.delivery.making import make
from train.delivery.ring import Ring, make_shared
from train.delivery.windows import WindowReader
from train.delivery.worker import Beginning, Request
from train.delivery.worker_process import WorkerProcess
from train.order import Selection


class Maker(Protocol):
    """Makes batches in the slots of `ring`. Answers come in the order of asking."""

    ring: Ring

    def ask(self, slot: int, select: Callable[[], Selection]) -> None:
        """Have the batch made that `select` tells, in a slot that nobody uses."""
        ...

    def answer(self) -> BatchShape:
        """Wait for the next batch that was asked for. Raises, in its place, what making it raised."""
        ...

    def close(self) -> None:
        """End what makes batches; waits for it."""
        ...


class ThreadMaker:
    """One thread of this process."""

    def __init__(self, readers: Sequence[WindowReader], first_ids: Sequence[int], slots: int, slot_bytes: int) -> None:
        self.ring = Ring(slots, slot_bytes)
        self._readers, self._first_ids = readers, first_ids
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._asked: deque[Future[BatchShape]] = deque()

    def ask(self, slot: int, select: Callable[[], Selection]) -> None:
        self._asked.append(self._pool.submit(self._make, slot, select))

    def answer(self) -> BatchShape:
        return self._asked.popleft().result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _make(self, slot: int, select: Callable[[], Selection]) -> BatchShape:
        return make(select(), slot, self.ring, self._readers, self._first_ids)


class ProcessMaker:
    """Worker processes, which take turns: the n-th batch is made by worker n mod N, so that answers come in order
    whoever is the fastest, and the same batches come whatever N is."""

    def __init__(
        self, readers: Sequence[WindowReader], first_ids: Sequence[int], slots: int, slot_bytes: int, workers: int
    ) -> None:
        """Start the processes, and let them open the stores meanwhile. What keeps them from it is their first answer.

        Raises EnvironmentLacking, RequestError where there is no memory to share.
        """
        self._readers = readers
        self._workers: list[WorkerProcess] = []
        # Selections are made in a thread, so that the training thread does not wait for them.
        self._selecting = ThreadPoolExecutor(1, thread_name_prefix="select")
        self._asked: deque[Future[BatchShape]] = deque()
        self._asks = self._answers = 0
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
        self._asked.append(self._selecting.submit(self._send, worker, slot, select))

    def answer(self) -> BatchShape:
        worker = self._workers[self._answers % len(self._workers)]
        self._answers += 1
        shape = self._asked.popleft().result()
        worker.answer()
        return shape

    def close(self) -> None:
        self._selecting.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            worker.join()

    def _send(self, worker: WorkerProcess, slot: int, select: Callable[[], Selection]) -> BatchShape:
        selection = select()
        self.ring.ask(slot, selection)
        clips, candidates = selection.choice_BK.shape
        worker.ask(Request(slot, selection.source, clips, candidates, selection.rows or 0, selection.tokens or 0))
        return self._readers[selection.source].shape_of(selection)
