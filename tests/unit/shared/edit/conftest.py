"""Stores to edit: what a video holds depends on its id alone, so that it can be looked for."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from shared.captions import KeptCaptions, KeptTrack, write_caption_shard
from shared.errors import Failure
from shared.manifest_writer import ManifestSetWriter
from shared.schema import Source, StreamEntry
from shared.shard_writer import ShardWriter
from shared.store import open_writer

STREAMS = {
    "default": {"kind": "features", "container": "npy", "dtype": "float16", "row_shape": (8,)},
    "wide": {"kind": "features", "container": "h5", "dtype": "float32", "row_shape": (6,)},
    "thumbs": {"kind": "frames", "container": "npy", "dtype": "uint8", "row_shape": (3, 4, 3)},
}


class Editing:
    """`build(path, ids)`: two videos a shard; ids that begin with `x` fail; every third video's rows are irregular."""

    def entry(self, stream: str, **changes: object) -> StreamEntry:
        facts = {"fingerprint": f"{len(stream):04x}", "identity": {"model": stream}}
        return StreamEntry(**(facts | STREAMS[stream] | changes))

    def rows(self, stream: str, video_id: str) -> np.ndarray:
        random = np.random.RandomState(zlib.crc32(f"{stream}/{video_id}".encode()))
        entry = self.entry(stream)
        values = random.randint(1, 255, (4 + len(video_id) % 3, *entry.row_shape))
        return values.astype(entry.dtype) if entry.dtype == "uint8" else (values / 64).astype(entry.dtype)

    def text(self, video_id: str, number: int = 0) -> str:
        return f"what {video_id} says, for the {number}th time"

    def build(self, path: Path, ids: Sequence[str], *, source: str = "ab", config: str = "a") -> Path:
        with open_writer(path) as writer:
            for stream in STREAMS:
                entry = self.entry(stream)
                for unit, first in enumerate(range(0, len(ids), 2)):
                    shard = self.shard(writer.scratch, stream, unit, ids[first : first + 2], source)
                    entry = entry.model_copy(update={"shards": (*entry.shards, shard.ref)})
                    writer.commit(shard.files, streams=writer.root.streams | {stream: entry})
            kept = [self.kept(video_id) for video_id in ids]
            for number, first in enumerate(range(0, len(kept), 4)):
                captions = write_caption_shard(writer.scratch, number, kept[first : first + 4])
                writer.commit(captions.files, captions=(*writer.root.captions, captions.ref))
            self.add_set(writer, ids, config)
        return path

    def shard(self, scratch: Path, stream: str, unit: int, ids: Sequence[str], source: str = "ab") -> object:
        with ShardWriter(scratch, stream, self.entry(stream), f"{unit:04x}", unit) as writer:
            for number, video_id in enumerate(ids):
                if video_id.startswith("x"):
                    writer.fail_video(video_id, Failure("corrupt", "decode", "no frame"), None)
                    continue
                rows = self.rows(stream, video_id)
                spans = np.stack([np.arange(len(rows)), np.arange(len(rows)) + 1.0], axis=1).astype(np.float64)
                valid = np.zeros(len(rows), np.int32)
                if (unit + number) % 3 == 0:
                    spans[1] += 0.25
                    valid[-1] = 3
                writer.append(rows)
                writer.end_video(
                    video_id, source=Source(bytes=1, xxh3=source), duration=float(len(rows)), decoder="decord",
                    partial=False, spans=spans, valid=valid,
                )  # fmt: skip
            return writer.finish()

    def kept(self, video_id: str) -> KeptCaptions:
        data = f"WEBVTT\n\n00:00.000 --> 00:02.000\n{self.text(video_id)}\n".encode()
        return KeptCaptions(video_id, "train", {"title": f"title of {video_id}"}, (KeptTrack(f"{video_id}.vtt", data),))

    def add_set(self, writer: object, ids: Sequence[str], config: str = "a") -> None:
        table = ManifestSetWriter(writer.scratch / "set")
        for position, video_id in enumerate(ids):
            if video_id.startswith("x"):
                table.add_failure(video_id, "decode", "corrupt", "no frame")
                continue
            split = "val" if position % 3 == 2 else "train"
            count = 1 + position % 3
            tokens = [np.array([1 + zlib.crc32(video_id.encode()) % 1000, 2 + k], np.int32) for k in range(count)]
            texts = [self.text(video_id, k) for k in range(count)]
            first = table.add_captions(video_id, [float(k) for k in range(count)], [k + 1.5 for k in range(count)],
                                       texts, tokens)  # fmt: skip
            for k in range(count):
                bag = [first + (k + j) % count for j in range(count)]
                table.add_window(split, video_id, 1.0 * k, k + 2.0, k, 2, bag)
            table.add_video(video_id, split, 4.5, len(self.rows("default", video_id)))
        writer.commit_set(*table.finish(
            name="words", stream="default", stream_fingerprint=self.entry("default").fingerprint,
            config={"which": config}, tokenizer={"pad_id": 0}, report={"example": self.text(ids[0])},
        ))  # fmt: skip

    def traces(self, store: Path, video_id: str) -> list[str]:
        """Files in which something of a video stands: rows of any stream, captions, its title; compressed ones too."""
        needles = [f"what {video_id} says".encode(), f"title of {video_id}".encode(), f"{video_id}.vtt".encode()]
        needles += [self.rows(stream, video_id)[0].tobytes() for stream in STREAMS]
        found = []
        for path in sorted(path for path in store.rglob("*") if path.is_file()):
            data = path.read_bytes()
            data += gzip.decompress(data) if path.suffix == ".gz" else b""
            if any(needle in data for needle in needles):
                found.append(path.relative_to(store).as_posix())
        return found

    def content(self, store: Path) -> dict[str, bytes]:
        return {p.relative_to(store).as_posix(): p.read_bytes() for p in sorted(store.rglob("*")) if p.is_file()}


@pytest.fixture(scope="session")
def editing() -> Editing:
    return Editing()


@pytest.fixture(scope="session")
def memory(tmp_path_factory):
    """A folder in memory where there is some: what fsync costs on a disk buys nothing in these tests."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path_factory.mktemp("memory")
        return
    with tempfile.TemporaryDirectory(prefix="clipmill-edit-", dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def built(editing, memory) -> Path:
    """A store of nine videos; not to be changed."""
    return editing.build(memory / "built", ["a", "bb", "x1", "ccc", "d", "ee", "fff", "g", "h"])


@pytest.fixture
def tmp_path(memory):
    """Takes the place of pytest's own."""
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
def store(built, tmp_path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "store"))
