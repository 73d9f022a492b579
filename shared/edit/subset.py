"""A new store with some of the videos of another."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from shared.edit.ids import is_tombstone, known_ids, refuse_unknown
from shared.edit.sets import SetPart, why_not_editable, write_set
from shared.edit.take import Source, take_captions, take_stream
from shared.edit.target import copy_run_records, new_store
from shared.errors import StoreError
from shared.manifest_writer import VIDEO_COLUMNS
from shared.schema import InputRecord, SetEntry, StreamEntry
from shared.shard_writer import FinishedFile
from shared.store import Store, StoreWriter, open_store, set_entry


@dataclass(frozen=True)
class Made:
    """What a new store got. videos: how many. dropped: the sets it does not have, and why. removed: its takedowns."""

    videos: int
    dropped: tuple[tuple[str, str], ...] = ()
    removed: int = 0


def ids_of_split(store: Store, set_name: str, split: str) -> list[str]:
    """The videos of one split of a set. Raises StoreError where there are none."""
    rows = store.manifest_set(set_name).rows("videos", VIDEO_COLUMNS)
    splits: dict[str, list[str]] = {}
    for row in rows:
        splits.setdefault(row["split"], []).append(row["video_id"])
    if split not in splits:
        found = ", ".join(sorted(splits)) or "none"
        raise StoreError(f"set {set_name!r} of {store.path} has no video of split {split!r}; its splits: {found}")
    return splits[split]


def subset_store(path: Path, target: Path, ids: Collection[str]) -> Made:
    """Make a store at `target` of the videos `ids`: their rows, captions, and their part of every manifest set.

    Shards that are wanted whole are copied as they are. Takedowns of the old store hold in the new one. Streams that
    are being made again (`pending`) are not taken.
    Raises StoreError naming unknown ids or a target that is in use, DamageFound, StoppedEarly.
    """
    store, wanted = open_store(path), set(ids)
    refuse_unknown(store, ids, known_ids(store))
    with new_store(target) as writer:
        return _take(store, writer, wanted)


def _take(store: Store, writer: StoreWriter, wanted: set[str]) -> Made:
    source = Source(store, writer.scratch, copies=True)
    files: list[FinishedFile] = []
    streams: dict[str, StreamEntry] = {}
    for name, entry in store.root.streams.items():
        refs, made = take_stream(source, name, entry, wanted.__contains__)
        streams[name] = entry.model_copy(update={"shards": refs})
        files += made

    def edit(record: InputRecord) -> bool:
        return record.id in wanted or is_tombstone(record)

    captions, made = take_captions(source, edit)
    files += made
    sets: dict[str, SetEntry] = {}
    dropped = []
    for name in store.root.sets:
        why = why_not_editable(store, name)
        if why:
            dropped.append((name, why))
            continue
        part = SetPart(store.manifest_set(name), wanted.__contains__)
        info, made = write_set([part], writer.scratch / f"set-{name}", "subset")
        sets[name] = set_entry(info)
        files += made
    copy_run_records(store, writer)
    writer.commit(files, streams=streams, captions=tuple(captions), sets=sets)
    return Made(len(wanted), tuple(dropped))
