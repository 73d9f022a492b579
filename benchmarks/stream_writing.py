"""A stream of made-up rows for the benchmarks of reading: one row a second."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shared.schema import Container, Source, StreamEntry
from shared.shard_writer import ShardWriter
from shared.store import StoreWriter


def write_rows(
    writer: StoreWriter, videos: int, rows_of: Callable[[int], np.ndarray], shards: int, container: Container = "npy"
) -> None:
    """Stream `rows` of videos 000000, 000001, ..., in so many shards. rows_of: float16 (T, D) of a video's number."""
    entry = StreamEntry(
        kind="features", fingerprint="ab", identity={}, container=container, dtype="float16",
        row_shape=rows_of(0).shape[1:],
    )  # fmt: skip
    finished = []
    for unit, numbers in enumerate(np.array_split(np.arange(videos), shards)):
        with ShardWriter(writer.scratch, "rows", entry, f"{unit:04x}", unit) as shard:
            for number in numbers.tolist():
                rows = rows_of(number)
                shard.append(rows)
                starts = np.arange(len(rows), dtype=np.float64)
                shard.end_video(
                    f"{number:06d}", source=Source(bytes=0, xxh3="00"), duration=float(len(rows)), decoder="none",
                    partial=False, spans=np.stack([starts, starts + 1], 1), valid=np.zeros(len(rows), np.int32),
                )  # fmt: skip
            finished.append(shard.finish())
    refs, files = tuple(shard.ref for shard in finished), [file for shard in finished for file in shard.files]
    writer.commit(files, streams={"rows": entry.model_copy(update={"shards": refs})})
