"""Who makes batches ahead: a thread of this process, or worker processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from shared.errors import RunFailed
from train.delivery.arrays import BatchShape
from train.delivery.background import Answer, Background
from train.delivery.making import make
from train.delivery.ring import Ring, make_shared
from train.delivery.windows import WindowReader
from train.delivery.worker import Beginning, Request
from train.delivery.worker_process import WorkerProcess
from train.order import Selection

ReadyT = TypeVar("ReadyT")
# From ring, slot and shape of a batch that is complete to what the training thread gets. Done ahead as well: the
# caches of the training thread are cold after a step, so that even making six tensors would take it long.
Finish = Callable[[Ring, int, BatchShape], ReadyT]


class Maker(Protocol[ReadyT]):
    """Makes batches in the slots of `ring`, so that their answers are there in the order of asking."""

    ring: Ring

    def ask(self, slot: int, select: Callable[[], Selection]) -> Answer[ReadyT]:
        """Have the batch made that `select` tells, in a slot that nobody uses. The answer raises what making it raised.

        Done or not done when a signal handler raises meanwhile, but nothing between.
        """
        ...

    def settle(self) -> None:
        """Wait until no slot is being written to."""
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

    def ask(self, slot: int, select: Callable[[], Selection]) -> Answer[ReadyT]:
        return self._thread.call(partial(self._make, slot, select))

    def settle(self) -> None:
        self._thread.call(_nothing).get()

    def close(self) -> None:
        self._thread.close()

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
        # First, since it may be refused: no thread has been started then.
        self.ring, memory = make_shared(slots, slot_bytes)
        self._readers, self._finish = readers, finish
        self._workers: list[WorkerProcess] = []
        # Threads, so that the training thread waits neither for a selection nor for what is to be done at the end.
        self._selecting, self._receiving = Background("select"), Background("receive")
        self._asks, self._closed = 0, False
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

    def ask(self, slot: int, select: Callable[[], Selection]) -> Answer[ReadyT]:
        worker = self._workers[self._asks % len(self._workers)]
        self._asks += 1
        answer: Answer[ReadyT] = Answer()
        self._selecting.call(partial(self._send, worker, slot, select, answer))
        return answer

    def settle(self) -> None:
        self._selecting.call(_nothing).get()
        self._receiving.call(_nothing).get()

    def close(self) -> None:
        self._closed = True
        self._selecting.close()
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            worker.join()
        self._receiving.close()

    def _send(self, worker: WorkerProcess, slot: int, select: Callable[[], Selection], answer: Answer[ReadyT]) -> None:
        """Ask a worker, then for its answer: in one thread, as each worker's answers come in the order of asking."""
        try:
            selection = select()
            shape = self._readers[selection.source].shape_of(selection)
            self.ring.ask(slot, selection)
        except BaseException as error:  # noqa: BLE001  (raised again where the answer is asked for)
            answer.set(None, error)
            return
        clips, candidates = selection.choice_BK.shape
        worker.ask(Request(slot, selection.source, clips, candidates, selection.rows or 0, selection.tokens or 0))
        self._receiving.call(partial(self._receive, worker, slot, shape), answer)

    def _receive(self, worker: WorkerProcess, slot: int, shape: BatchShape) -> ReadyT:
        try:
            worker.answer()
        except RunFailed:
            if self._closed:
                raise RuntimeError("the loader was closed before this batch was made") from None
            raise
        return self._finish(self.ring, slot, shape)


def _nothing() -> None:
    """What is asked for to learn that everything before it is done."""
