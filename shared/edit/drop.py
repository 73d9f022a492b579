"""Whole streams and manifest sets out of a store, in one commit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from shared.errors import StoreError
from shared.store import StoreWriter

Entry = TypeVar("Entry")


def drop_parts(writer: StoreWriter, streams: Sequence[str], sets: Sequence[str]) -> None:
    """Take streams (those being made again as well) and sets out; their files are deleted, all others stay.

    Raises StoreError, and changes nothing, for a name that the store does not have, and for a stream of which sets
    would be left that nothing can read.
    """
    root = writer.root
    made = root.streams.keys() | root.pending.keys()
    for kind, wanted, known in (("stream", streams, made), ("set", sets, root.sets.keys())):
        if unknown := sorted(set(wanted) - known):
            there = ", ".join(sorted(known)) or "none"
            raise StoreError(f"{writer.path} has no {kind} {unknown[0]!r}: nothing was changed; it has {there}")
    left = sorted(name for name, entry in root.sets.items() if entry.stream in streams and name not in sets)
    if left:
        raise StoreError(
            f"set {left[0]!r} was cut for stream {root.sets[left[0]].stream!r} and could not be used without it: "
            f"nothing was changed; take it out as well: {' '.join(f'--set {name}' for name in left)}"
        )
    writer.commit(
        [],
        streams=_without(root.streams, streams),
        pending=_without(root.pending, streams),
        sets=_without(root.sets, sets),
    )


def _without(table: dict[str, Entry], names: Collection[str]) -> dict[str, Entry]:
    return {name: entry for name, entry in table.items() if name not in names}
