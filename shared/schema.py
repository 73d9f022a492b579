"""What the store's JSON files hold. FORMAT.md says the same in words; `VERSIONS` stand here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

from shared.fingerprint import sealed_json

FORMAT: Literal["clipmill-store"] = "clipmill-store"
VERSIONS = (1, 2)
"""Those that are read. A store is written in the lowest one that has all that it holds."""
VERSION = VERSIONS[-1]

Kind = Literal["features", "frames"]
Container = Literal["npy", "h5"]
DType = Literal["float16", "float32", "uint8"]
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$"
Name = Annotated[str, StringConstraints(pattern=NAME)]
# No dot: `windows-<split>.csv` must not read like a later part of another split.
TWINS = ("tokens.npy", "offsets.npy")
EMBEDDINGS = "embeddings.npy"
SPLIT_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,99}$"
SplitName = Annotated[str, StringConstraints(pattern=SPLIT_NAME)]
Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]*$")]
Count = Annotated[int, Field(ge=0)]


class Record(BaseModel):
    """Base of everything in the store: immutable, unknown keys are damage."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(Record):
    """Size in bytes and xxh3-128 of one file."""

    bytes: Count
    xxh3: Hex


class Source(Record):
    """Identity of an input: its bytes, never its path or time."""

    bytes: Count
    xxh3: Hex


class FailureRecord(Record):
    """One video that yielded no rows: the fixed reason, the stage, a line for people."""

    id: str
    reason: str
    stage: str
    message: str
    source: Source | None = None


class VideoRecord(Record):
    """Where one video's rows stand in a shard, and the time they cover (seconds).

    Regular streams: row k covers [start + k * step, min(start + k * step + length, end)).
    Irregular ones (`step` null): the shard's spans file holds [start, end) of every row.
    """

    id: str
    first_row: Count
    rows: Count
    start: float
    step: float | None
    length: float | None
    end: float
    duration: float
    decoder: str
    partial: bool = False
    source: Source


class Checksums(Record):
    """xxh3-64 of every `block_rows` rows of the payload, as hex digits one after another."""

    block_rows: Annotated[int, Field(ge=1)]
    xxh3_64: Hex


class ShardIndex(Record):
    """`<shard>.json`: everything about a shard but its rows."""

    stream: Name
    fingerprint: Hex
    unit: Hex
    container: Container
    dtype: DType
    row_shape: tuple[Count, ...]
    rows: Count
    spans: bool
    valid: bool
    checksums: Checksums
    videos: tuple[VideoRecord, ...]
    failed: tuple[FailureRecord, ...]

    @model_validator(mode="after")
    def _rows_follow_each_other(self) -> ShardIndex:
        row = 0
        for video in self.videos:
            if video.first_row != row:
                raise ValueError(f"video {video.id!r} starts at row {video.first_row}, expected {row}")
            row += video.rows
        if row != self.rows:
            raise ValueError(f"the videos hold {row} rows, the shard {self.rows}")
        return self

    @model_validator(mode="after")
    def _a_video_stands_once(self) -> ShardIndex:
        ids = [video.id for video in self.videos] + [record.id for record in self.failed]
        if len(set(ids)) != len(ids):
            twice = next(video_id for number, video_id in enumerate(ids) if video_id in ids[:number])
            raise ValueError(f"video {twice!r} stands in the shard twice")
        return self


class ShardRef(Record):
    """A shard as the root knows it. `name` is its path without extension, below the stream's folder."""

    name: Name
    unit: Hex
    rows: Count
    videos: Count
    failed: Count


class StreamEntry(Record):
    """One extractor's rows under one configuration."""

    kind: Kind
    fingerprint: Hex
    identity: dict[str, Any]
    container: Container
    dtype: DType
    row_shape: tuple[Count, ...]
    shards: tuple[ShardRef, ...] = ()


class CaptionTrackRecord(Record):
    name: str
    bytes: Count
    xxh3: Hex


class InputRecord(Record):
    """One video as the input manifest gave it, with its caption tracks or why they could not be kept."""

    id: str
    split: str | None
    attributes: dict[str, str]
    tracks: tuple[CaptionTrackRecord, ...]
    failure: FailureRecord | None = None


class CaptionIndex(Record):
    """`captions/<shard>.json`: who is in the shard; the texts stand beside it in `.jsonl.gz`."""

    videos: tuple[InputRecord, ...]


class CaptionRef(Record):
    name: Name
    videos: Count


class SetEntry(Record):
    """One manifest set. `path` is its folder; `stream_fingerprint` is what its windows were cut for."""

    path: str
    fingerprint: Hex
    stream: Name
    stream_fingerprint: Hex
    splits: dict[SplitName, Count]


class Root(Record):
    """`store.json`. `pending` streams are being made again under a new configuration; readers do not see them yet."""

    format: Literal["clipmill-store"] = FORMAT
    version: int = VERSIONS[0]
    streams: dict[Name, StreamEntry] = {}
    pending: dict[Name, StreamEntry] = {}
    captions: tuple[CaptionRef, ...] = ()
    sets: dict[Name, SetEntry] = {}
    files: dict[str, FileEntry] = {}

    @model_validator(mode="after")
    def _paths_stay_inside(self) -> Root:
        for path in [*self.files, *(entry.path for entry in self.sets.values())]:
            pure = PurePosixPath(path)
            if pure.is_absolute() or ".." in pure.parts or "\\" in path:
                raise ValueError(f"file {path!r} leaves the store")
        return self

    @model_validator(mode="after")
    def _version_is_that_of_the_content(self) -> Root:
        if self.version != version_of(self.files):
            raise ValueError(f"version {self.version} with files of version {version_of(self.files)}")
        return self

    def to_bytes(self) -> bytes:
        """Canonical JSON with the digest of the rest under `digest`."""
        return sealed_json(self.model_dump(mode="json"))


def stream_folder(kind: Kind, name: str) -> str:
    """The folder of a stream, relative to the store: `features/<name>` or `frames/<name>`."""
    return f"{kind}/{name}"


def version_of(files: Iterable[str]) -> int:
    """The lowest format version that has these files (paths relative to the store)."""
    return 2 if any(path.startswith("manifests/") and path.endswith(f"/{EMBEDDINGS}") for path in files) else 1


class EmbeddingInfo(Record):
    """What stands in `embeddings.npy` of a set: vectors of `dim` numbers; identity: what made them."""

    dtype: Literal["float16", "float32"]
    dim: Annotated[int, Field(ge=1)]
    identity: dict[str, Any]


class ManifestInfo(Record):
    """`manifest.json` of a set. `parts` gives the data rows of each CSV; `splits` the windows of each split.

    embeddings: of its captions; a set without any does not have the key.
    """

    name: Name
    fingerprint: Hex
    stream: Name
    stream_fingerprint: Hex
    config: dict[str, Any]
    tokenizer: dict[str, Any]
    captions: Count
    tokens: Count
    splits: dict[SplitName, Count]
    parts: dict[str, Count]
    report: dict[str, Any]
    embeddings: EmbeddingInfo | None = None

    @model_serializer(mode="wrap")
    def _without_what_is_not_there(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = dump(self)
        if self.embeddings is None:
            del content["embeddings"]
        return content

    @property
    def data_files(self) -> list[str]:
        """Every file of the set but `manifest.json`."""
        return sorted([*self.parts, *TWINS, *([EMBEDDINGS] if self.embeddings else [])])

    @property
    def folder(self) -> str:
        """The set's folder, relative to the store."""
        return f"manifests/{self.name}-{self.fingerprint[:12]}"

    def part_files(self, table: str) -> list[str]:
        """The CSV files of one table (`captions`, `windows-train`, ...) in order."""
        return sorted(
            (file for file in self.parts if file == f"{table}.csv" or _is_later_part(file, table)),
            key=lambda file: (len(file), file),
        )


def _is_later_part(file: str, table: str) -> bool:
    middle = file.removeprefix(f"{table}.").removesuffix(".csv")
    return file.startswith(f"{table}.") and middle.isdigit()
