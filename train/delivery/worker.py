"""A worker process: makes the batches that it is asked for in shared memory, as long as somebody asks.

Imports neither torch nor anything that does, so it is there in a fraction of a second, and small.
"""

from __future__ import annotations

import os
import struct
from multiprocessing.connection import Connection
from typing import NamedTuple

from shared.errors import ClipmillError
from train.delivery.making import make
from train.delivery.ring import Ring
from train.delivery.windows import OpenedWindows, WindowReader, reopened
from train.order import Selection

DONE, FAILED = b"done", b"failed"
_REQUEST = struct.Struct("6q")


class Beginning(NamedTuple):
    """What a worker is told first. sources: what it reads from, by number. first_ids: see `make`."""

    sources: tuple[OpenedWindows, ...]
    first_ids: tuple[int, ...]
    slots: int
    slot_bytes: int


class Request(NamedTuple):
    """Make the batch that is asked for in `slot`: from a source, (clips, candidates), T and L, 0 for those of the data.

    Requests and their answers are sent as bytes, at half the cost of pickled objects.
    """

    slot: int
    source: int
    clips: int
    candidates: int
    rows: int
    tokens: int

    def pack(self) -> bytes:
        return _REQUEST.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> Request:
        return cls(*_REQUEST.unpack(data))


def main(channel: int, memory: int) -> None:
    """Work until the channel is closed, which the death of the training process does, too.

    channel, memory: descriptors of one end of a Pipe, and of the ring's memory.
    """
    try:
        work(Connection(channel), memory)
    except (EOFError, ConnectionError):
        return


def work(channel: Connection, memory: int) -> None:
    """Answer requests in order: DONE, or FAILED and the error that came instead of a batch.

    An error that is no ClipmillError is a bug, and ends the process with its traceback.
    """
    beginning: Beginning = channel.recv()
    ring = Ring(beginning.slots, beginning.slot_bytes, memory)
    os.close(memory)
    try:
        readers = [reopened(source, WindowReader) for source in beginning.sources]
    except ClipmillError as error:
        _send_error(channel, error)
        return
    while True:
        request = Request.unpack(channel.recv_bytes())
        window_B, choice_BK = ring.request(request.slot, request.clips, request.candidates)
        selection = Selection(window_B, choice_BK, request.source, request.rows or None, request.tokens or None)
        try:
            make(selection, request.slot, ring, readers, beginning.first_ids)
        except ClipmillError as error:
            _send_error(channel, error)
        else:
            channel.send_bytes(DONE)


def _send_error(channel: Connection, error: ClipmillError) -> None:
    channel.send_bytes(FAILED)
    channel.send(error)
