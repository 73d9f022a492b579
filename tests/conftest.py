"""Fixtures for everyone: the folder of test material, and a small hand-made store."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from shared.manifest_writer import ManifestSetWriter
from shared.schema import Source, StreamEntry
from shared.shard_writer import ShardWriter
from shared.store import open_writer

MATERIAL = Path(__file__).resolve().parents[2] / "shared"


def material(*parts: str) -> Path:
    """A path in the folder of test material beside the checkout; absent, it skips, or fails where CI requires it."""
    path = MATERIAL.joinpath(*parts)
    if not path.exists():
        message = f"test material {'/'.join(parts)} is not beside this checkout"
        if os.environ.get("CLIPMILL_REQUIRE_MATERIAL"):
            pytest.fail(message)
        pytest.skip(message)
    return path


@pytest.fixture(scope="session")
def material_path():
    """`material_path("cases", "videos", "vfr.mp4")` -> Path, or a visible skip."""
    return material


def write_small_store(
    path: Path,
    *,
    splits: dict[str, int] | None = None,
    windows: int = 3,
    seed: int = 0,
    thumbs: bool = False,
    container: str = "npy",
    set_fingerprint: str = "",
    identity: dict[str, object] | None = None,
) -> Path:
    """A store written as preprocessing writes one: what a video shows (one of 12 things) is in its rows and captions.

    splits: videos in each split. Every video has `windows` windows of 2 to 5 rows (8 channels, one a second), and bags
    of 1 to 3 captions. thumbs: a second stream of 12 x 16 pictures.
    """
    splits = splits or {"train": 24, "val": 8}
    random = np.random.RandomState(seed)
    things = np.random.RandomState(99).standard_normal((12, 8))
    with open_writer(path) as writer:
        entry = StreamEntry(
            kind="features",
            fingerprint="ab",
            identity=identity or {},
            container=container,
            dtype="float16",
            row_shape=(8,),
        )
        pixels = StreamEntry(
            kind="frames", fingerprint="cd", identity={}, container="npy", dtype="uint8", row_shape=(12, 16, 3)
        )
        videos = [(f"{split}{n:03d}", split) for split, count in splits.items() for n in range(count)]
        streams = {"default": entry} | ({"thumbs": pixels} if thumbs else {})
        shards = {name: ShardWriter(writer.scratch, name, item, "0123", 0) for name, item in streams.items()}
        table = ManifestSetWriter(writer.scratch / "set")
        for number, (video, split) in enumerate(videos):
            thing = number % 12
            rows = 5 * windows
            spans = np.stack([np.arange(rows), np.arange(rows) + 1.0], axis=1).astype(np.float64)
            content = {
                "default": (things[thing] + 0.3 * random.standard_normal((rows, 8))).astype(np.float16),
                "thumbs": np.full((rows, 12, 16, 3), 20 * thing, np.uint8),
            }
            for name, shard in shards.items():
                shard.append(content[name])
                shard.end_video(
                    video, source=Source(bytes=1, xxh3="ab"), duration=float(rows), decoder="decord", partial=False,
                    spans=spans, valid=np.zeros(rows, int),
                )  # fmt: skip
            for window in range(windows):
                count, bag = 2 + (number + window) % 4, 1 + (number + window) % 3
                start = 5.0 * window
                ids = [np.array([1 + thing, 20 + int(random.randint(30))], np.int32) for _ in range(bag)]
                texts = [f"thing {thing} of {video}, take {window}.{k}" for k in range(bag)]
                first = table.add_captions(video, [start] * bag, [start + 2] * bag, texts, ids)
                table.add_window(split, video, start, start + count, 5 * window, count, range(first, first + bag))
            table.add_video(video, split, float(rows), rows)
        finished = {name: shard.finish() for name, shard in shards.items()}
        entries = {name: item.model_copy(update={"shards": (finished[name].ref,)}) for name, item in streams.items()}
        writer.commit([file for shard in finished.values() for file in shard.files], streams=entries)
        info, files = table.finish(
            name="default", stream="default", stream_fingerprint="ab", config={"note": set_fingerprint},
            tokenizer={"pad_id": 0, "vocab_size": 64, "max_length": 6}, report={},
        )  # fmt: skip
        writer.commit_set(info, files)
    return path


@pytest.fixture(scope="session")
def small_store():
    """`small_store(path, ...)` -> path of a small hand-made store to train on."""
    return write_small_store


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
