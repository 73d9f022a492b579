"""A worker process: makes the batches that it is asked for in shared memory, as long as somebody asks.

Imports neither torch nor anything that does, so it is there in a fraction of a second, and small.
"""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from typing import NamedTuple

from shared.errors import ClipmillError
from train.delivery.making import make
from train.delivery.ring import Ring
from train.delivery.windows import OpenedWindows, WindowReader, reopened
from train.order import Selection


class Beginning(NamedTuple):
    """What a worker is told first. sources: what it reads from, by number. first_ids: see `make`."""

    sources: tuple[OpenedWindows, ...]
    first_ids: tuple[int, ...]
    slots: int
    slot_bytes: int


class Request(NamedTuple):
    """Make the batch that is asked for in `slot`: from a source, (clips, candidates), T and L or None."""

    slot: int
    source: int
    clips: int
    candidates: int
    rows: int | None
    tokens: int | None


def main(channel: int, memory: int) -> None:
    """Work until the channel is closed, which the death of the training process does, too.

    channel, memory: descriptors of one end of a Pipe, and of the ring's memory.
    """
    try:
        work(Connection(channel), memory)
    except (EOFError, ConnectionError):
        return


def work(channel: Connection, memory: int) -> None:
    """Answer requests in order: with None, or with the error that came instead of a batch.

    An error that is no ClipmillError is a bug, and ends the process with its traceback.
    """
    beginning: Beginning = channel.recv()
    ring = Ring(beginning.slots, beginning.slot_bytes, memory)
    os.close(memory)
    try:
        readers = [reopened(source, WindowReader) for source in beginning.sources]
    except ClipmillError as error:
        channel.send(error)
        return
    while True:
        request: Request = channel.recv()
        window_B, choice_BK = ring.request(request.slot, request.clips, request.candidates)
        selection = Selection(window_B, choice_BK, request.source, request.rows, request.tokens)
        try:
            make(selection, request.slot, ring, readers, beginning.first_ids)
        except ClipmillError as error:
            channel.send(error)
        else:
            channel.send(None)
