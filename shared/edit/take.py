"""Taking what is wanted out of a store: whole files are copied as they are, others written again without the rest.

Shard by shard and through maps; memory does not grow with the store. What is copied is checked on the way, so that
damage does not travel under a new root.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shared.atomic import disk_full_stops, fsync_file
from shared.captions import KeptCaptions, read_caption_index, read_caption_shard, write_caption_shard
from shared.checks import check_file
from shared.edit.ids import ids_of, shard_indexes
from shared.errors import StoreError
from shared.rewrite import shard_without
from shared.schema import CaptionRef, InputRecord, ShardRef, StreamEntry, stream_folder
from shared.shard_writer import FinishedFile
from shared.store import Store
from shared.store_files import open_file, unreadable

Keep = Callable[[str], bool]


@dataclass(frozen=True)
class Source:
    """A store to take from. scratch: a folder of its own for what is made of it, on the target's file system.

    copies: whether the target is another store, so that files which stay as they are must be copied there.
    """

    store: Store
    scratch: Path
    copies: bool


def take_stream(
    source: Source, stream: str, entry: StreamEntry, keep: Keep
) -> tuple[tuple[ShardRef, ...], list[FinishedFile]]:
    """The shards of one stream with only the videos that `keep` says. Raises DamageFound, StoreError, StoppedEarly."""
    store, refs, files = source.store, [], []
    for ref, index in zip(entry.shards, shard_indexes(store, stream, entry), strict=True):
        dropped = {video_id for video_id in ids_of(index) if not keep(video_id)}
        if not dropped:
            refs.append(ref)
            files += _copies(source, f"{stream_folder(entry.kind, stream)}/{ref.name}.")
            continue
        rest = shard_without(store.path, stream, entry, ref, dropped, source.scratch, store.root.files)
        if rest is not None:
            refs.append(rest.ref)
            files += rest.files
    return tuple(refs), files


def take_captions(
    source: Source, edit: Callable[[InputRecord], KeptCaptions | bool]
) -> tuple[list[CaptionRef], list[FinishedFile]]:
    """The captions as found, each video as `edit` says: True as it is, False not at all, or another record.

    Raises DamageFound, StoreError, StoppedEarly.
    """
    store, refs, files = source.store, [], list[FinishedFile]()
    for ref in store.root.captions:
        expected = store.root.files.get(f"captions/{ref.name}.json")
        edits = [edit(record) for record in read_caption_index(store.path, ref.name, expected).videos]
        if all(change is True for change in edits):
            refs.append(ref)
            files += _copies(source, f"captions/{ref.name}.")
            continue
        videos = []
        for change, kept in zip(edits, read_caption_shard(store.path, ref.name, expected), strict=True):
            if isinstance(change, KeptCaptions):
                videos.append(change)
            elif change:
                videos.append(kept)
        if videos:
            shard = write_caption_shard(source.scratch, shard_number(ref.name), videos)
            refs.append(shard.ref)
            files += shard.files
    return refs, files


def shard_number(name: str) -> int:
    """The number that a shard's name begins with."""
    return int(name.partition("-")[0])


def _copies(source: Source, prefix: str) -> list[FinishedFile]:
    if not source.copies:
        return []
    return [_copy(source, path) for path in source.store.root.files if path.startswith(prefix)]


def _copy(source: Source, path: str) -> FinishedFile:
    entry = source.store.root.files[path]
    original, copied = source.store.path / path, source.scratch / path.replace("/", "-")
    try:
        os.close(open_file(original))
    except FileNotFoundError:
        raise _unusable(source.store, path, "missing") from None
    except OSError as error:
        raise unreadable(original, error) from None
    with disk_full_stops(copied):
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(original, copied)
        fsync_file(copied)
    what = check_file(copied, entry)
    if what:
        raise _unusable(source.store, path, what)
    return FinishedFile(copied, path, entry)


def _unusable(store: Store, path: str, what: str) -> StoreError:
    return StoreError(
        f"{store.path / path}: {what}. The store was changed meanwhile, or is damaged: run the same command again, "
        f"and `python -m preprocess verify {store.path}` if that does not help"
    )
