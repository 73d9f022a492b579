"""Builds the golden stores of the format's versions: `python tests/contract/make_golden.py`.

Everything that the format can hold stands in them once: both containers, all three row types, regular and irregular
spans, padded rows, failures, captions that are no UTF-8, a set in two splits with texts that need quoting; from
version 2 on caption embeddings.
A golden store that exists is never replaced by other bytes: raise `shared.schema.VERSION` first.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from shared import manifest_writer, schema
from shared.captions import KeptCaptions, KeptTrack, write_caption_shard
from shared.errors import Failure
from shared.manifest_writer import ManifestSetWriter
from shared.schema import VERSION, VERSIONS, EmbeddingInfo, FailureRecord, Source, StreamEntry
from shared.shard_writer import ShardWriter
from shared.store import StoreWriter, open_writer

HERE = Path(__file__).resolve().parent
GOLDEN = {version: HERE / f"golden_store_v{version}" for version in VERSIONS}
SCHEMA = HERE / f"schema_v{VERSION}.json"
SOURCE = Source(bytes=1234, xxh3="0123456789abcdef0123456789abcdef")
STREAMS: dict[str, dict[str, Any]] = {
    "plain": {"kind": "features", "container": "npy", "dtype": "float16", "row_shape": (4,)},
    "wide": {"kind": "features", "container": "h5", "dtype": "float32", "row_shape": (3,)},
    "thumbs": {"kind": "frames", "container": "npy", "dtype": "uint8", "row_shape": (2, 2, 3)},
}
TRACKS = (
    KeptTrack("cat.en.vtt", b'WEBVTT\n\n00:01.000 --> 00:02.500\na cat, "jumping"\n'),
    KeptTrack("cat.de.srt", "1\r\n00:00:01,000 --> 00:00:02,500\r\nKätzchen\r\n".encode("latin1")),
)


EMBEDDINGS = EmbeddingInfo(dtype="float16", dim=2, identity={"encoder": "test"})


def make_golden(path: Path, version: int = VERSION) -> None:
    """Write the golden store of a version to `path`, which must not exist."""
    with open_writer(path) as writer:
        for name, facts in STREAMS.items():
            entry = StreamEntry(fingerprint=f"{len(name):032x}", identity={"model": name, "fps": 1.0}, **facts)
            _add_stream(writer, name, entry)
        videos = [
            KeptCaptions("cat", "train", {"licence": "CC BY 4.0"}, TRACKS),
            KeptCaptions("küche", "test", {}, ()),
            KeptCaptions(
                "lost", None, {}, (), FailureRecord(id="lost", reason="missing", stage="captions", message="-")
            ),
        ]
        captions = write_caption_shard(writer.scratch, 0, videos)
        writer.commit(captions.files, captions=(captions.ref,))
        _add_set(writer, None)
        if version > 1:
            _add_set(writer, EMBEDDINGS)


def _add_stream(writer: StoreWriter, name: str, entry: StreamEntry) -> None:
    for unit, videos in enumerate((("cat",), ("küche", "zoo"))):
        with ShardWriter(writer.scratch, name, entry, f"{unit:032x}", unit) as shard:
            for number, video in enumerate(videos):
                rows = 3 + unit + number
                count = rows * int(np.prod(entry.row_shape))
                values = np.arange(1, count + 1, dtype=np.float64) / (1 if entry.dtype == "uint8" else 8)
                shard.append(values.reshape(rows, *entry.row_shape).astype(entry.dtype))
                starts = np.arange(rows, dtype=np.float64)
                spans = np.stack([starts, np.minimum(starts + 1, rows - 0.5)], axis=1)
                valid = np.zeros(rows, np.int32)
                if video == "zoo" and name == "wide":
                    spans[1] += 0.125
                    valid[-1] = 7
                shard.end_video(
                    video, source=SOURCE, duration=rows - 0.5, decoder="decord", partial=number == 1, spans=spans,
                    valid=valid,
                )  # fmt: skip
            if unit:
                shard.fail_video("broken", Failure("corrupt", "decode", "ends in the middle"), SOURCE)
                shard.fail_video("absent", Failure("missing", "input", "no such file"), None)
            finished = shard.finish()
        entry = entry.model_copy(update={"shards": (*entry.shards, finished.ref)})
        writer.commit(finished.files, streams=writer.root.streams | {name: entry})


def _add_set(writer: StoreWriter, embeddings: EmbeddingInfo | None) -> None:
    manifest = ManifestSetWriter(writer.scratch / "set", embeddings)
    vectors = np.arange(1, 9, dtype=np.float16).reshape(4, 2) / 8 if embeddings else None
    ids = [np.array([101, 7, 102], np.int32), np.array([], np.int32), np.array([101, 9, 9, 102], np.int32)]
    manifest.add_captions(
        "cat", [0.0, 1 / 3, 1.5], [1 / 3, 1.5, 2.5], ['a cat, "jumping"', "", "lone\rreturn\nand é"], ids,
        None if vectors is None else vectors[:3],
    )  # fmt: skip
    manifest.add_window("train", "cat", 0.0, 2.5, 0, 3, [1, 0, 2])
    manifest.add_window("train", "cat", 1.0, 2.5, 1, 2, [2])
    manifest.add_video("cat", "train", 2.5, 3)
    last = None if vectors is None else vectors[3:]
    manifest.add_captions("küche", [0.0], [3.5], ["NA"], [np.array([5], np.int32)], last)
    manifest.add_window("test", "küche", 0.0, 3.5, 0, 4, [3])
    manifest.add_video("küche", "test", 3.5, 4)
    manifest.add_failure("broken", "decode", "corrupt", "ends in the middle")
    info, files = manifest.finish(
        name="vectors" if embeddings else "words",
        stream="plain",
        stream_fingerprint=writer.root.streams["plain"].fingerprint,
        config={"candidates": 3},
        tokenizer={"name": "test", "pad_id": 0},
        report={"captions": {"kept": 4, "dropped": 0}},
    )
    writer.commit_set(info, files)


def describe_schema() -> dict[str, Any]:
    """Every record with its fields, and every table with its columns: what another version would change."""
    records = {
        name: {
            field: f"{info.annotation}{'' if info.is_required() else f' = {info.default!r}'}"
            for field, info in record.model_fields.items()
        }
        for name, record in vars(schema).items()
        if isinstance(record, type) and issubclass(record, schema.Record) and record is not schema.Record
    }
    tables = {name: list(value) for name, value in vars(manifest_writer).items() if name.endswith("_COLUMNS")}
    literals = {name: str(getattr(schema, name)) for name in ("FORMAT", "VERSIONS", "Kind", "Container", "DType")}
    patterns = {name: str(getattr(schema, name).__metadata__[0].pattern) for name in ("Name", "SplitName", "Hex")}
    return {"records": records, "tables": tables, "literals": literals, "patterns": patterns}


def files_below(path: Path) -> dict[str, bytes]:
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def main() -> None:
    described = json.dumps(describe_schema(), indent=1, sort_keys=True) + "\n"
    for version, golden in GOLDEN.items():
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "store"
            make_golden(made, version)
            if golden.exists() and files_below(made) != files_below(golden):
                _refuse(golden)
            if not golden.exists():
                shutil.copytree(made, golden)
        print(f"{golden}: {sum(map(len, files_below(golden).values()))} bytes")
    if SCHEMA.exists() and SCHEMA.read_text() != described:
        _refuse(SCHEMA)
    SCHEMA.write_text(described)


def _refuse(path: Path) -> NoReturn:
    sys.exit(f"{path.name} exists and the writer makes other bytes: raise VERSION in shared/schema.py first")


if __name__ == "__main__":
    main()
