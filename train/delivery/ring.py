"""Slots in one piece of anonymous memory, which processes can share without a name for it anywhere."""

from __future__ import annotations

import mmap
import os

import numpy as np

from shared.errors import EnvironmentLacking, RequestError
from train.delivery.arrays import BatchArrays, BatchShape, layout, request_layout
from train.free_memory import available_bytes
from train.order import Selection


class Ring:
    """slots times slot_bytes of memory. Each slot holds a request, and behind it the batch that is made of it.

    Whatever kills a process, nothing stays behind: the memory has no name, in /dev/shm or elsewhere, and the system
    frees it with the last process that has it mapped. It stays mapped as long as any array of it lives.
    """

    def __init__(self, slots: int, slot_bytes: int, descriptor: int = -1) -> None:
        """descriptor: of memory that another process made (`make_shared`), -1 for memory of this process alone.

        Raises RequestError where the system does not give so much.
        """
        self.slots = slots
        self._slot_bytes = -(-slot_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            memory = mmap.mmap(descriptor, self.bytes)
        except OSError as error:
            raise _too_large(slots, slot_bytes, error.strerror) from None
        self.memory = np.frombuffer(memory, np.uint8)

    @property
    def bytes(self) -> int:
        return self.slots * self._slot_bytes

    def request(self, slot: int, clips: int, candidates: int) -> tuple[np.ndarray, np.ndarray]:
        """window_B and choice_BK of a slot, int64."""
        window, choice = request_layout(clips, candidates).fields
        memory = self._slot(slot)
        return window.within(memory), choice.within(memory)

    def ask(self, slot: int, selection: Selection) -> None:
        """Write down what is to be made in a slot."""
        window_B, choice_BK = self.request(slot, *selection.choice_BK.shape)
        window_B[...], choice_BK[...] = selection.window_B, selection.choice_BK

    def block(self, slot: int, shape: BatchShape) -> np.ndarray:
        """uint8 (shape.bytes,): the batch of a slot."""
        start = request_layout(shape.clips, shape.candidates).bytes
        return self._slot(slot)[start : start + shape.bytes]

    def arrays(self, slot: int, shape: BatchShape) -> BatchArrays:
        return BatchArrays.within(self.block(slot, shape), shape)

    def _slot(self, slot: int) -> np.ndarray:
        return self.memory[slot * self._slot_bytes : (slot + 1) * self._slot_bytes]


def slot_bytes(shape: BatchShape) -> int:
    """What a slot needs for a batch of this shape and the request for it."""
    return request_layout(shape.clips, shape.candidates).bytes + layout(shape).bytes


def make_shared(slots: int, slot_bytes: int) -> tuple[Ring, int]:
    """A ring and the descriptor of its memory, for the processes that are to share it; the caller closes it.

    Raises EnvironmentLacking where the system has no such memory, RequestError where it does not give so much.
    """
    if not hasattr(os, "memfd_create"):
        raise EnvironmentLacking("data.workers needs memfd_create, which Linux has; use data.workers=0 here")
    if slots * slot_bytes > available_bytes():
        # The system would promise it, and end a process when it is used.
        raise _too_large(slots, slot_bytes, "more than is free")
    descriptor = os.memfd_create("clipmill ring", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, slots * (-(-slot_bytes // mmap.PAGESIZE) * mmap.PAGESIZE))
        return Ring(slots, slot_bytes, descriptor), descriptor
    except OSError as error:
        os.close(descriptor)
        raise _too_large(slots, slot_bytes, error.strerror) from None


def _too_large(slots: int, slot_bytes: int, reason: str | None) -> RequestError:
    return RequestError(
        f"{slots} batches of {slot_bytes:,} bytes cannot be held in memory: {reason}; lower data.prefetch, "
        "data.workers, data.max_rows or batch_size"
    )
