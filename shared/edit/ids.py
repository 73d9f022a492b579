"""Which videos a store knows, who was removed from it, and lists of ids from people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from shared.captions import read_caption_index
from shared.errors import InputFileError, RequestError, StoreError
from shared.explain import why_unreadable
from shared.schema import FailureRecord, InputRecord, ShardIndex, StreamEntry, stream_folder
from shared.store import Store
from shared.stream_index import read_shard_index

# The reason of a caption record that stands for a takedown: nothing of the video is left, and no run extracts it again.
REMOVED = "removed"
# The reason of a video whose rows, or captions, `repair` had to drop: the next run makes them again.
DAMAGED = "damaged"
_SHOWN = 10


def tombstone(video_id: str) -> FailureRecord:
    """What a store keeps of a video that was removed: its id, so that no later run lets it in again unnoticed."""
    message = "removed on request; `preprocess restore` lets it in again"
    return FailureRecord(id=video_id, reason=REMOVED, stage="input", message=message)


def is_tombstone(record: InputRecord) -> bool:
    return record.failure is not None and record.failure.reason == REMOVED


def input_records(store: Store) -> Iterator[InputRecord]:
    """Every video that the store has inputs of, those removed included. Raises DamageFound."""
    for ref in store.root.captions:
        path = f"captions/{ref.name}.json"
        yield from read_caption_index(store.path, ref.name, store.root.files.get(path)).videos


def removed_ids(store: Store) -> set[str]:
    """The videos that were removed and not restored. Raises DamageFound."""
    return {record.id for record in input_records(store) if is_tombstone(record)}


def shard_indexes(store: Store, stream: str, entry: StreamEntry) -> Iterator[ShardIndex]:
    """The index of every shard of a stream, in their order, checked against the root. Raises DamageFound."""
    folder = stream_folder(entry.kind, stream)
    for ref in entry.shards:
        yield read_shard_index(store.path / folder, ref.name, store.root.files.get(f"{folder}/{ref.name}.json"))


def ids_of(index: ShardIndex) -> set[str]:
    """The videos of a shard, those that failed included."""
    return {video.id for video in index.videos} | {record.id for record in index.failed}


def known_ids(store: Store) -> set[str]:
    """Every video of the store: with rows, failed, or with captions only; not those that were removed."""
    known = {record.id for record in input_records(store) if not is_tombstone(record)}
    for streams in (store.root.streams, store.root.pending):
        for name, entry in streams.items():
            for index in shard_indexes(store, name, entry):
                known |= ids_of(index)
    return known


def read_ids(path: Path) -> list[str]:
    """A file of ids, one a line, UTF-8; empty lines are passed over. Raises InputFileError."""
    try:
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        why = why_unreadable(error)
        raise InputFileError(f"file of ids {path} cannot be read: {why}; expected UTF-8 text, one id a line") from None
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise InputFileError(f"file of ids {path} holds none; write one id a line")
    return ids


def given_ids(listed: Sequence[str] | None, file: Path | None) -> list[str]:
    """Ids from the command line or from a file, in order, each once. Raises RequestError unless just one is given."""
    if bool(listed) == (file is not None):
        raise RequestError("give the ids as arguments or in a file (--ids FILE), one of both")
    return list(dict.fromkeys(read_ids(file) if file is not None else listed or ()))


def refuse_unknown(store: Store, wanted: Iterable[str], known: set[str]) -> None:
    """Raises StoreError that names the ids that the store does not have."""
    unknown = [video_id for video_id in wanted if video_id not in known]
    if unknown:
        raise StoreError(
            f"{store.path} has no video {listing(unknown)}: nothing was changed; "
            f"`preprocess inspect {store.path}` lists those it has"
        )


def listing(ids: Sequence[str]) -> str:
    """Some of many ids, for a message."""
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(map(repr, ids[:_SHOWN])) + more
