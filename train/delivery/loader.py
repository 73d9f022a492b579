"""Batches that are ready when they are asked for, in the order of their steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType

import torch

from shared.errors import ClipmillError
from train.batch import Batch
from train.delivery.arrays import BatchShape
from train.delivery.background import Answer
from train.delivery.config import DataConfig
from train.delivery.handing_over import PageLock, Slot, on_device
from train.delivery.makers import Maker, ProcessMaker, ThreadMaker
from train.delivery.ring import Ring, slot_bytes
from train.delivery.sizing import batches_ahead, ring_slots
from train.delivery.windows import WindowReader
from train.order import Selection

CPU = torch.device("cpu")


class Loader:
    """Makes one rank's batches ahead, by a thread (`workers: 0`) or by worker processes, in the slots of a ring.

    On a CPU a batch lies in its slot, nothing is copied. It is the consumer's as long as any of its tensors lives,
    also a view of one, or what autograd keeps of it: only then its slot is used again. There are slots for those ahead,
    the one in use and the one before it. Who keeps others has fewer ahead, and with all of them kept a RuntimeError:
    what is to stay is to be copied (`tensor.clone()`). On a GPU the ring is page-locked, a batch is a copy on the
    device, to keep, and a slot is used again when the copy is complete.

    A context manager: worker processes end with it, and with this process, however it ends.
    """

    def __init__(
        self,
        readers: Sequence[WindowReader],
        shapes: Sequence[BatchShape],
        *,
        config: DataConfig | None = None,
        first_ids: Sequence[int] = (0,),
        device: torch.device = CPU,
    ) -> None:
        """readers: what selections choose from, by their `source`. shapes: that batches may have; slots are as large as
        the largest. config: its `workers` and `prefetch`. first_ids: added to the video ids of each source.

        Raises RequestError where there is not enough memory, EnvironmentLacking where it cannot be shared or locked.
        """
        config = config or DataConfig()
        self._device, self._ahead = device, batches_ahead(config.workers, config.prefetch)
        self._slots = [Slot() for _ in range(ring_slots(config.workers, config.prefetch))]
        room = len(self._slots), max(map(slot_bytes, shapes))
        # Batches that were asked for and not yet taken, in the order of asking: slot and answer.
        self._underway: deque[tuple[int, Answer[Batch | BatchShape]]] = deque()
        # All others, those that were handed out first at the front.
        self._idle = deque(range(len(self._slots)))
        self._calls = 0
        finish = _to_be_copied if device.type == "cuda" else partial(_handed_out, self._slots)
        self._maker: Maker[Batch | BatchShape] = (
            ProcessMaker(readers, first_ids, *room, finish, config.workers)
            if config.workers
            else ThreadMaker(readers, first_ids, *room, finish)
        )
        self._lock: PageLock | None = None
        if device.type == "cuda":
            try:
                self._lock = PageLock(self._maker.ring.memory)
            except ClipmillError:
                self._maker.close()
                raise

    def batches(self, select: Callable[[int], Selection], start: int, stop: int) -> Iterator[Batch]:
        """select(start), ..., select(stop - 1) as batches, in this order; ends the iterator of an earlier call.

        `select` is called up to `prefetch` times `workers` steps ahead, by another thread.
        The iterator raises, in its place, what comes instead of a batch: DamageFound; StoreError for a store that was
        changed; RunFailed for a worker that died. RuntimeError where too many batches are still in use.
        """
        self._calls += 1
        self._maker.settle()
        # What an earlier call asked for, nobody wants any more; a slot is nowhere after a Ctrl-C at the wrong moment.
        self._underway.clear()
        self._idle.extend(sorted(set(range(len(self._slots))).difference(self._idle)))
        return self._delivered(select, start, stop, self._calls)

    def close(self) -> None:
        """End what makes batches, and the iterator. Those that were delivered stay whole."""
        self._calls += 1
        self._maker.close()
        if self._lock is not None:
            for slot in self._slots:
                slot.copied(wait=True)
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _delivered(self, select: Callable[[int], Selection], start: int, stop: int, call: int) -> Iterator[Batch]:
        following = start
        for step in range(start, stop):
            if call != self._calls:
                raise RuntimeError(f"step {step}: this loader was closed, or asked for other batches, since")
            # Asking comes last where it can: what makes batches then competes with this thread for the interpreter.
            following = self._ask(select, following, step + 1)
            if not self._underway:
                raise RuntimeError(
                    f"all {len(self._slots)} batches that fit are still in use: drop one before the next is taken, "
                    "copy what is to stay (tensor.clone()), or raise data.prefetch"
                )
            taken = [self._take()]
            following = self._ask(select, following, min(stop, step + 1 + self._ahead))
            # Not even this function keeps the batch in use.
            yield taken.pop()

    def _ask(self, select: Callable[[int], Selection], start: int, stop: int) -> int:
        """Have the batches of these steps made, as far as there are slots; returns the first that was not asked for."""
        for step in range(start, stop):
            slot = self._free_slot()
            if slot is None:
                return step
            self._underway.append((slot, self._maker.ask(slot, partial(select, step))))
        return max(start, stop)

    def _free_slot(self) -> int | None:
        """A slot that nobody uses, or None. With no batch underway, copies to a GPU are waited for."""
        for number in self._idle:
            if not self._slots[number].in_use() and self._slots[number].copied(wait=not self._underway):
                self._idle.remove(number)
                return number
        return None

    def _take(self) -> Batch:
        number, answer = self._underway.popleft()
        found = answer.get()
        self._idle.append(number)
        if isinstance(found, Batch):
            return found
        copied = torch.from_numpy(self._maker.ring.block(number, found)).to(self._device, non_blocking=True)
        self._slots[number].copying(self._device)
        return on_device(copied, found)


# Functions, since a method would make a circle, which keeps the ring's memory until the next collection of garbage.
def _handed_out(slots: Sequence[Slot], ring: Ring, number: int, shape: BatchShape) -> Batch | BatchShape:
    return slots[number].hand_out(ring.arrays(number, shape))


def _to_be_copied(_ring: Ring, _number: int, shape: BatchShape) -> Batch | BatchShape:
    return shape
