"""What a stream's shard indexes say, as arrays: found out once, held in memory or mapped from a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from shared.checks import BlockTable
from shared.errors import DamageFound, StoreError
from shared.explain import first_fault
from shared.fingerprint import hash_bytes
from shared.schema import FileEntry, ShardIndex, ShardRef, StreamEntry, VideoRecord
from shared.store_files import REPAIR, read_file, unreadable
from shared.texts import pack_texts, unpack_texts

Arrays = Mapping[str, np.ndarray]


class StreamIndex:
    """Videos in the order of their ids, each with its place; shards in the order of the root.

    Of V videos: shard_V int32; first_row_V, rows_V int64; duration_V float64, seconds.
    start_V, step_V, length_V, end_V: float64, seconds, as FORMAT.md (6) says; step and length NaN where irregular.
    blocks: checksums of rows. spans_S, valid_S: bool, whether a shard has files of them.
    """

    def __init__(self, arrays: Arrays) -> None:
        """arrays: what `stream_arrays` gave, or the same from a cache."""
        self._arrays = arrays
        self.shard_V, self.first_row_V, self.rows_V = arrays["shard_V"], arrays["first_row_V"], arrays["rows_V"]
        self.duration_V, self.start_V, self.end_V = arrays["duration_V"], arrays["start_V"], arrays["end_V"]
        self.step_V, self.length_V = arrays["step_V"], arrays["length_V"]
        self.spans_S, self.valid_S = arrays["spans_S"], arrays["valid_S"]
        self.blocks = BlockTable(arrays["block_rows_S"], arrays["first_block_S"], arrays["digest_N"])

    def __len__(self) -> int:
        return len(self.shard_V)

    @cached_property
    def video_ids(self) -> list[str]:
        return unpack_texts(self._arrays["id_bytes"], self._arrays["id_offsets"])

    @cached_property
    def number(self) -> dict[str, int]:
        """Video number of each id."""
        return {video_id: number for number, video_id in enumerate(self.video_ids)}


def stream_arrays(
    folder: Path, name: str, entry: StreamEntry, expected: Sequence[FileEntry | None]
) -> dict[str, np.ndarray]:
    """Read all shard indexes of a stream. expected: what the root says of each, None where it is not asked.

    Raises DamageFound for an index that is missing or damaged or says another thing than the root, StoreError for a
    video that stands in two shards.
    """
    indexes = [
        _same_as_root(read_shard_index(folder, ref.name, file), ref, entry, folder)
        for ref, file in zip(entry.shards, expected, strict=True)
    ]
    placed = [(video, shard) for shard, index in enumerate(indexes) for video in index.videos]
    placed.sort(key=lambda pair: pair[0].id)
    for (video, _), (following, _) in pairwise(placed):
        if video.id == following.id:
            raise StoreError(
                f"stream {name!r} of {folder.parent.parent} holds a video twice ({video.id!r}): "
                f"run `python -m preprocess verify {folder.parent.parent}`"
            )
    return {**_video_arrays(placed), **_shard_arrays(indexes)}


def _video_arrays(placed: Sequence[tuple[VideoRecord, int]]) -> dict[str, np.ndarray]:
    id_bytes, id_offsets = pack_texts([video.id for video, _ in placed])
    return {
        "shard_V": np.array([shard for _, shard in placed], np.int32),
        "first_row_V": np.array([video.first_row for video, _ in placed], np.int64),
        "rows_V": np.array([video.rows for video, _ in placed], np.int64),
        "duration_V": np.array([video.duration for video, _ in placed], np.float64),
        "start_V": np.array([video.start for video, _ in placed], np.float64),
        # None becomes NaN.
        "step_V": np.array([video.step for video, _ in placed], np.float64),
        "length_V": np.array([video.length for video, _ in placed], np.float64),
        "end_V": np.array([video.end for video, _ in placed], np.float64),
        "id_bytes": id_bytes,
        "id_offsets": id_offsets,
    }


def _shard_arrays(indexes: Sequence[ShardIndex]) -> dict[str, np.ndarray]:
    digests = [np.frombuffer(bytes.fromhex(index.checksums.xxh3_64), ">u8") for index in indexes]
    return {
        "spans_S": np.array([index.spans for index in indexes], bool),
        "valid_S": np.array([index.valid for index in indexes], bool),
        "block_rows_S": np.array([index.checksums.block_rows for index in indexes], np.int64),
        "first_block_S": np.cumsum([0, *map(len, digests)], dtype=np.int64),
        "digest_N": np.concatenate([np.empty(0, np.uint64), *digests]).astype(np.uint64),
    }


def _same_as_root(index: ShardIndex, ref: ShardRef, entry: StreamEntry, folder: Path) -> ShardIndex:
    blocks = -(-index.rows // index.checksums.block_rows)
    for what, found, said in (
        ("rows", index.rows, ref.rows),
        ("row_shape", index.row_shape, entry.row_shape),
        ("dtype", index.dtype, entry.dtype),
        ("container", index.container, entry.container),
        ("digits of checksums", len(index.checksums.xxh3_64), 16 * blocks),
    ):
        if found != said:
            raise DamageFound(f"{folder / ref.name}.json says {what} {found!r}, expected {said!r}; run `verify`")
    return index


def read_shard_index(folder: Path, name: str, expected: FileEntry | None = None) -> ShardIndex:
    """`<shard>.json`, checked against what the root says of it where that is given.

    Raises DamageFound when it is missing, changed, or not what the format says, StoreError when it may not be read.
    """
    path = folder / f"{name}.json"
    try:
        data = read_file(path)
        if expected is not None and hash_bytes(data) != expected.xxh3:
            raise DamageFound(f"{path} is not what the root says: its content changed; {REPAIR}")
        return ShardIndex.model_validate_json(data)
    except OSError as error:
        raise unreadable(path, error) from None
    except ValidationError as error:
        raise DamageFound(f"{path} is not a shard index: {first_fault(error)}; {REPAIR}") from None
