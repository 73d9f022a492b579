"""The store that an edit writes: one that is there, or the new one of a subset or a merge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.atomic import make_directory, replace_file
from shared.errors import StoreError
from shared.schema import Root
from shared.store import ROOT, Store, StoreWriter, open_store, open_writer, refuse_inside_store
from shared.store_files import read_file, unreadable


@contextmanager
def existing_store(path: Path) -> Iterator[StoreWriter]:
    """Hold the lease of a store that is there; unlike `open_writer` this makes none. Raises StoreError, DamageFound."""
    open_store(path)
    with open_writer(path) as writer:
        writer.remove_leftovers()
        yield writer


@contextmanager
def new_store(path: Path) -> Iterator[StoreWriter]:
    """Hold the lease of a store that holds nothing yet: none, or what a killed command of this kind has left.

    Raises StoreError for one that holds anything, RequestError inside of another store.
    """
    refuse_inside_store(path.parent, "the new store")
    if (path / ROOT).exists() and open_store(path).root != Root():
        raise StoreError(f"{path} is a store already: nothing was changed; give a new folder")
    with open_writer(path) as writer:
        writer.remove_leftovers()
        yield writer


def copy_run_records(store: Store, writer: StoreWriter) -> None:
    """Run records go along: they say which batches did not fit into memory, and no later run must meet that again."""
    for record in sorted((store.path / "runs").glob("*.json")):
        try:
            data = read_file(record)
        except OSError as error:
            raise unreadable(record, error) from None
        make_directory(writer.path / "runs")
        replace_file(writer.path / "runs" / record.name, data)
