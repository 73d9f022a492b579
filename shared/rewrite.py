"""Writing a shard again without some of its videos: for changed inputs, retries, removal. Rows are copied."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

from shared.features import StreamReader
from shared.fingerprint import fingerprint
from shared.schema import FileEntry, ShardRef, StreamEntry
from shared.shard_writer import FinishedShard, ShardWriter

_COPY_ROWS = 4096


def shard_without(
    store: Path,
    stream: str,
    entry: StreamEntry,
    ref: ShardRef,
    dropped: AbstractSet[str],
    scratch: Path,
    files: Mapping[str, FileEntry],
) -> FinishedShard | None:
    """The shard `ref` without the videos `dropped`, in scratch; None when nothing is left of it.

    files: what the root says. Raises DamageFound: a changed bit must not be given a new checksum.
    """
    reader = StreamReader(store, stream, entry.model_copy(update={"shards": (ref,)}), files)
    kept = [number for number, video_id in enumerate(reader.video_ids) if video_id not in dropped]
    failed = [record for record in reader.failure_records if record.id not in dropped]
    if not kept and not failed:
        return None
    unit = fingerprint([ref.unit, sorted(dropped)])
    with ShardWriter(scratch, stream, entry, unit, int(ref.name.partition("-")[0])) as writer:
        for number in sorted(kept, key=lambda number: reader.record(number).first_row):
            _copy_video(reader, number, writer)
        for record in failed:
            writer.keep_failure(record)
        return writer.finish()


def _copy_video(reader: StreamReader, number: int, writer: ShardWriter) -> None:
    record, rows = reader.record(number), reader.read(number)
    for first in range(0, len(rows), _COPY_ROWS):
        writer.append(rows[first : first + _COPY_ROWS])
    writer.end_video(
        record.id,
        source=record.source,
        duration=record.duration,
        decoder=record.decoder,
        partial=record.partial,
        spans=reader.spans(number),
        valid=reader.valid(number),
    )
