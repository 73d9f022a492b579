"""Fixtures for everyone: the folder of test material, and a small hand-made store."""

from __future__ import annotations

import os
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

from shared.manifest_writer import ManifestSetWriter
from shared.schema import EmbeddingInfo, Source, StreamEntry
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
    encoder: str | None = None,
) -> Path:
    """A store written as preprocessing writes one: what a video shows (one of 12 things) is in its rows and captions.

    splits: videos in each split. Every video has `windows` windows of 2 to 5 rows (8 channels, one a second), and bags
    of 1 to 3 captions. thumbs: a second stream of 12 x 16 pictures. encoder: captions have embeddings (7 numbers),
    which say what the video shows, by an encoder of that name.
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
        embeddings = EmbeddingInfo(dtype="float16", dim=7, identity={"weights": encoder}) if encoder else None
        table = ManifestSetWriter(writer.scratch / "set", embeddings)
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
                noise = np.random.RandomState(1000 * number + window).standard_normal((bag, 7))
                said = (things[thing, :7] + 0.3 * noise).astype(np.float16) if encoder else None
                first = table.add_captions(video, [start] * bag, [start + 2] * bag, texts, ids, said)
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


def write_stream(
    path: Path,
    name: str,
    spans_of,
    *,
    dim: int = 6,
    dtype: str = "float16",
    kind: str = "features",
    fingerprint: str = "ef",
    without: tuple[str, ...] = (),
    rows_of=None,
) -> Path:
    """One more stream of a hand-made store, or that stream anew; a video's rows depend on its id and `dim` alone.

    spans_of(video id, seconds) -> the spans of its rows, (rows, 2). without: ids of videos that it lacks.
    rows_of(video id, rows) -> what they hold; default: anything.
    """
    shape = (dim,) if kind == "features" else (dim, dim, 3)
    entry = StreamEntry(kind=kind, fingerprint=fingerprint, identity={}, container="npy", dtype=dtype, row_shape=shape)
    with open_writer(path) as writer:
        first = writer.store.stream("default")
        shard = ShardWriter(writer.scratch, name, entry, "0456", 0)
        for video, seconds in zip(first.video_ids, first.durations.tolist(), strict=True):
            if video in without:
                continue
            spans = spans_of(video, seconds)
            random = np.random.RandomState(zlib.crc32(video.encode()) + dim)
            rows = rows_of(video, len(spans)) if rows_of else 2 * random.standard_normal((len(spans), *shape))
            shard.append(rows.astype(dtype))
            shard.end_video(
                video, source=Source(bytes=1, xxh3="ab"), duration=seconds, decoder="decord", partial=False,
                spans=spans, valid=np.zeros(len(spans), int),
            )  # fmt: skip
        made = shard.finish()
        entry = entry.model_copy(update={"shards": (made.ref,)})
        writer.commit(made.files, streams=writer.root.streams | {name: entry})
    return path


@pytest.fixture(scope="session")
def add_stream():
    """`add_stream(path, name, spans_of, ...)` -> path of the store, with one more stream of the same videos."""
    return write_stream


def even_spans(step: float, length: float | None = None):
    """Rows of `length` seconds (default: `step`), one every `step`, from the start to the end of a video."""

    def spans(_: str, seconds: float) -> np.ndarray:
        begin = np.arange(0, seconds, step)
        return np.stack([begin, np.minimum(begin + (length or step), seconds)], axis=1)

    return spans


@pytest.fixture(scope="session")
def even():
    """`even(step, length)`: the spans of rows that come at even intervals."""
    return even_spans


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
