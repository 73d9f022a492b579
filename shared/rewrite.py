"""Writing a shard again without some of its videos, or in another container. Rows are copied."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

from shared.features import StreamReader
from shared.fingerprint import fingerprint
from shared.schema import FileEntry, ShardRef, StreamEntry, stream_folder
from shared.shard_writer import FinishedShard, ShardWriter
from shared.stream_index import read_shard_index

_COPY_ROWS = 4096


def shard_without(
    store: Path,
    stream: str,
    entry: StreamEntry,
    ref: ShardRef,
    dropped: AbstractSet[str],
    scratch: Path,
    files: Mapping[str, FileEntry],
    becomes: StreamEntry | None = None,
) -> FinishedShard | None:
    """The shard `ref` without the videos `dropped`, in scratch; None when nothing is left of it.

    files: what the root says. becomes: the entry under which rows of the same shape and dtype are to stand; default,
    the same. Raises DamageFound: a changed bit must not be given a new checksum.
    """
    becomes = becomes or entry
    folder = stream_folder(entry.kind, stream)
    index = read_shard_index(store / folder, ref.name, files.get(f"{folder}/{ref.name}.json"))
    if {video.id for video in index.videos} | {record.id for record in index.failed} <= dropped:
        return None
    unit = fingerprint([ref.unit, sorted(dropped)])
    with ShardWriter(scratch, stream, becomes, unit, int(ref.name.partition("-")[0])) as writer:
        copy_videos(store, stream, entry, ref, files, writer, dropped)
        return writer.finish()


def copy_videos(
    store: Path,
    stream: str,
    entry: StreamEntry,
    ref: ShardRef,
    files: Mapping[str, FileEntry],
    writer: ShardWriter,
    dropped: AbstractSet[str] = frozenset(),
) -> None:
    """Append what a shard holds to another one that is being written, but for the videos `dropped`.

    In the order of the rows. Raises DamageFound: what is copied is checked before.
    """
    reader = StreamReader(store, stream, entry.model_copy(update={"shards": (ref,)}), files)
    kept = [number for number, video_id in enumerate(reader.video_ids) if video_id not in dropped]
    for number in sorted(kept, key=lambda number: reader.record(number).first_row):
        _copy_video(reader, number, writer)
    for record in reader.failure_records:
        if record.id not in dropped:
            writer.keep_failure(record)


def _copy_video(reader: StreamReader, number: int, writer: ShardWriter) -> None:
    record = reader.record(number)
    for first in range(0, record.rows, _COPY_ROWS):
        writer.append(reader.read(number, first, min(_COPY_ROWS, record.rows - first)))
    writer.end_video(
        record.id,
        source=record.source,
        duration=record.duration,
        decoder=record.decoder,
        partial=record.partial,
        spans=reader.spans(number),
        valid=reader.valid(number),
    )
