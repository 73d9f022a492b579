"""`preprocess remove`: out of the store, and out of the memory beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from preprocess.sources import SourceCache
from shared.edit.ids import shard_indexes
from shared.edit.remove import Removal, remove_videos
from shared.edit.target import existing_store
from shared.schema import Source
from shared.store import Store


def take_down(path: Path, ids: Sequence[str]) -> Removal:
    """Remove videos from a store, and their paths from the cache of file identities.

    Raises StoreError naming unknown ids, DamageFound, StoppedEarly.
    """
    with existing_store(path) as writer:
        removal = remove_videos(writer, ids)
        if (path / ".cache").exists():
            with SourceCache(path) as cache:
                cache.keep_only(_sources(writer.store))
    return removal


def _sources(store: Store) -> set[Source]:
    found: set[Source] = set()
    for streams in (store.root.streams, store.root.pending):
        for name, entry in streams.items():
            for index in shard_indexes(store, name, entry):
                found.update(video.source for video in index.videos)
                found.update(record.source for record in index.failed if record.source is not None)
    return found
