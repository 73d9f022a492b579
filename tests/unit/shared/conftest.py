"""Small streams, shards and stores for the tests of the store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shared.captions import KeptCaptions, KeptTrack, write_caption_shard
from shared.errors import Failure
from shared.manifest_writer import ManifestSetWriter
from shared.schema import Source, StreamEntry
from shared.shard_writer import FinishedShard, ShardWriter
from shared.store import open_writer

DIM = 8


class Samples:
    """Makes the pieces of a store from seeds. Videos are named v<unit><number>; video v has 5 + number rows."""

    failure = Failure("corrupt", "decode", "the file ends in the middle")

    def entry(self, container: str = "npy", **changes: object) -> StreamEntry:
        facts = {"kind": "features", "fingerprint": "ab", "identity": {"model": "test"}, "dtype": "float16"}
        return StreamEntry(**(facts | {"container": container, "row_shape": (DIM,)} | changes))

    def rows(self, seed: int, count: int, entry: StreamEntry | None = None) -> np.ndarray:
        entry = entry or self.entry()
        return np.random.RandomState(seed).randn(count, *entry.row_shape).astype(entry.dtype)

    def spans(self, count: int, duration: float | None = None) -> np.ndarray:
        starts = np.arange(count, dtype=np.float64)
        return np.stack([starts, np.minimum(starts + 1, count if duration is None else duration)], axis=1)

    def end(self, writer: ShardWriter, video_id: str, count: int, **changes: object) -> None:
        facts = {
            "source": Source(bytes=1, xxh3="ab"),
            "duration": float(count),
            "decoder": "decord",
            "partial": False,
            "spans": self.spans(count),
            "valid": np.zeros(count, np.int32),
        }
        writer.end_video(video_id, **(facts | changes))

    def shard(self, scratch: Path, entry: StreamEntry, unit: int = 0, videos: int = 3) -> FinishedShard:
        with ShardWriter(scratch, "default", entry, f"{unit:04x}", unit) as writer:
            for video in range(videos):
                writer.append(self.rows(10 * unit + video, 5 + video, entry))
                self.end(writer, f"v{unit}{video}", 5 + video)
            writer.fail_video(f"x{unit}", self.failure, None)
            return writer.finish()

    def store(self, path: Path, container: str = "npy", units: int = 2) -> Path:
        """A whole store: shards, captions and a manifest set."""
        with open_writer(path) as writer:
            entry = self.entry(container)
            for unit in range(units):
                shard = self.shard(writer.scratch, entry, unit)
                entry = entry.model_copy(update={"shards": (*entry.shards, shard.ref)})
                writer.commit(shard.files, streams={"default": entry})
            kept = KeptCaptions("v00", "train", {"kind": "a"}, (KeptTrack("v00.vtt", b"WEBVTT\n\nh\xc3\xa9"),))
            captions = write_caption_shard(writer.scratch, 0, [kept])
            writer.commit(captions.files, captions=(captions.ref,))
            self.commit_set(writer)
        return path

    def commit_set(self, writer: object, **changes: object) -> None:
        manifest = self.manifest(writer.scratch / "set")
        facts = {
            "name": "default",
            "stream": "default",
            "stream_fingerprint": "ab",
            "config": {"window": 2},
            "tokenizer": {"pad_id": 0},
            "report": {"kept": 2},
        }
        writer.commit_set(*manifest.finish(**(facts | changes)))

    def manifest(self, directory: Path, texts: tuple[str, str] = ("stir, then", 'say "hot"')) -> ManifestSetWriter:
        writer = ManifestSetWriter(directory)
        tokens = [np.array([5, 6, 7], np.int32), np.array([], np.int32)]
        first = writer.add_captions("v00", [0.0, 1.25], [1.0, 2.0], texts, tokens)
        writer.add_window("train", "v00", 0.0, 2.5, 0, 3, [first, first + 1])
        writer.add_video("v00", "train", 5.0, 5)
        writer.add_failure("x0", "decode", "corrupt", "the file ends in the middle")
        return writer


@pytest.fixture(scope="session")
def samples() -> Samples:
    return Samples()
