"""How fast a set of ten million windows opens, and what each process pays: `python benchmarks/open.py [--quick]`.

A store is written with as many windows as are asked for (a hundred a video), the first process compiles its index, and
the next ones open the set for training (`train.data.WindowData`) and read a batch, each in a process of its own.
Seconds are of the clock, from after the imports to the open set; memory is what the process holds for itself (RssAnon)
more than after its imports. Of several openings the median counts. The last line is JSON: ratio is the goal for the
time over the time that was measured, met only when the memory is within its goal, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from shared.manifest_writer import ManifestSetWriter
from shared.schema import Source, StreamEntry
from shared.shard_writer import ShardWriter
from shared.store import open_store, open_writer

SECONDS, MIB = 2.0, 200.0
WINDOWS_A_VIDEO, BAG, SHARDS, DIM = 100, 5, 50, 8
ENTRY = StreamEntry(kind="features", fingerprint="ab", identity={}, container="npy", dtype="float16", row_shape=(DIM,))


def write_store(path: Path, videos: int) -> None:
    shards = []
    with open_writer(path) as writer:
        for unit, numbers in enumerate(np.array_split(np.arange(videos), SHARDS)):
            with ShardWriter(writer.scratch, "rows", ENTRY, f"{unit:04x}", unit) as shard:
                rows = np.ones((WINDOWS_A_VIDEO + 1, DIM), np.float16)
                starts = np.arange(len(rows), dtype=np.float64)
                spans, valid = np.stack([starts, starts + 1], 1), np.zeros(len(rows), np.int32)
                for number in numbers.tolist():
                    shard.append(rows)
                    shard.end_video(
                        name_of(number), source=Source(bytes=0, xxh3="00"), duration=float(len(rows)), decoder="none",
                        partial=False, spans=spans, valid=valid,
                    )  # fmt: skip
                shards.append(shard.finish())
        refs = tuple(shard.ref for shard in shards)
        files = [file for shard in shards for file in shard.files]
        writer.commit(files, streams={"rows": ENTRY.model_copy(update={"shards": refs})})
        manifest = ManifestSetWriter(writer.scratch / "set")
        for number in range(videos):
            write_video(manifest, name_of(number))
        tokenizer = {"pad_id": 0, "vocab_size": 100, "max_length": 2}
        facts = {"name": "default", "stream": "rows", "stream_fingerprint": "ab", "config": {}, "report": {}}
        writer.commit_set(*manifest.finish(tokenizer=tokenizer, **facts))


def write_video(manifest: ManifestSetWriter, name: str) -> None:
    first = manifest.add_captions(name, range(10), range(1, 11), ["a"] * 10, [[1, 2]] * 10)
    for window in range(WINDOWS_A_VIDEO):
        bag = [first + (window + step) % 10 for step in range(BAG)]
        manifest.add_window("train", name, window, window + 2, window, 2, bag)
    manifest.add_video(name, "train", WINDOWS_A_VIDEO + 1.0, WINDOWS_A_VIDEO + 1)


def name_of(video: int) -> str:
    """As long as an id of YouTube's."""
    return f"v{video:010d}"


def private_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def work(store: Path) -> None:
    """In a process of its own: print seconds to open, MiB held then, and MiB held after a batch."""
    from train.data import WindowData
    from train.delivery.windows import first_captions

    before, start = private_mib(), time.perf_counter()
    data = WindowData(open_store(store), "default", "train")
    seconds, opened = time.perf_counter() - start, private_mib() - before
    chosen = np.random.default_rng(0).integers(0, len(data), 256)
    batch = data.batch(first_captions(chosen, data.bag_W, BAG))
    assert bool(batch.video_mask_BT.all())
    found = {"seconds": seconds, "mib": opened, "mib_after_a_batch": private_mib() - before, "windows": len(data)}
    print(json.dumps(found))


def measure(store: Path) -> dict[str, float]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    command = [sys.executable, __file__, "--work", str(store)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a million windows, for a first look")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work)
        return
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        start = time.perf_counter()
        write_store(store, (1_000_000 if arguments.quick else 10_000_000) // WINDOWS_A_VIDEO)
        print(f"written in {time.perf_counter() - start:.0f} s")
        first = measure(store)
        rounds = [measure(store) for _ in range(5)]
        indexes = sum(file.stat().st_size for file in (store / ".cache" / "index").glob("*.idx"))
    found = {key: statistics.median(run[key] for run in rounds) for key in first}
    print(f"first opening, which compiles {indexes / 2**20:.0f} MiB of indexes: {first['seconds']:.1f} s")
    print(f"{found['windows']:.0f} windows open in {found['seconds']:.2f} s, {found['mib']:.0f} MiB private, "
          f"{found['mib_after_a_batch']:.0f} MiB after a batch")  # fmt: skip
    ratio, memory = SECONDS / found["seconds"], max(found["mib"], found["mib_after_a_batch"])
    summary = {"name": "open", "ratio": round(ratio, 2), "goal": 1.0, "met": ratio >= 1 and memory <= MIB}
    compiled = {"compile_seconds": first["seconds"], "index_bytes": indexes}
    print(json.dumps({**summary, **found, **compiled, "goals": [SECONDS, MIB]}))


if __name__ == "__main__":
    main()
