"""How fast windows of feature rows are read, side by side: `python benchmarks/windows.py [--quick]`.

Windows of 10 rows of 512 float16 (10 KiB), drawn at random from videos of different lengths, in batches of 256 that
end in one (256, 10, 512) array; page cache hot, one core. The figure is CPU microseconds a window, of all threads of a
worker process; rounds go over all readers, and the median counts. Peers are set as their documentation advises for
random access without a network (printed in the JSON). Those that read samples hold every tenth row's window, cut
beforehand: they could not give a window from any other row. webdataset only streams, so it is timed in the order of its
file.

`numpy` is the yardstick: one flat, mapped array and one fancy index, unverified, and deadly when the file is cut. The
last line is JSON: ratio is the best peer's time over ours (verify="first", after the first touch).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
from stream_writing import write_rows

from shared.features import Verify
from shared.row_sources import Mapping
from shared.schema import Container
from shared.store import open_store, open_writer

STEPS, DIM, BATCH, SHARDS = 10, 512, 256, 16
GOALS = {"peers": 4.0, "unverified": 1.5, "verified": 2.5}
Read = Callable[[np.ndarray], np.ndarray]
ARRAY_RECORD = "readahead_buffer_size:0,max_parallelism:0"


class Corpus:
    """Videos of random lengths from a seed, and the windows at every tenth row of them."""

    def __init__(self, videos: int) -> None:
        draw = np.random.default_rng(0)
        self.rows_V = np.clip(draw.lognormal(4.5, 0.6, videos), STEPS, 600).astype(np.int64)
        self.first_V = np.cumsum(self.rows_V) - self.rows_V
        windows_V = self.rows_V // STEPS
        self.video_W = np.repeat(np.arange(videos), windows_V)
        self.start_W = np.concatenate([np.arange(count) * STEPS for count in windows_V])

    def video(self, number: int) -> np.ndarray:
        rows = np.random.default_rng(number + 1).integers(1, 1 << 14, (int(self.rows_V[number]), DIM), np.uint16)
        return rows.view(np.float16)

    def samples(self) -> Iterator[np.ndarray]:
        for number in range(len(self.rows_V)):
            rows = self.video(number)
            yield from rows[: len(rows) // STEPS * STEPS].reshape(-1, STEPS, DIM)

    def batches(self, count: int) -> list[np.ndarray]:
        return list(np.random.default_rng(1).integers(0, len(self.video_W), (count, BATCH)))


def write_all(corpus: Corpus, folder: Path) -> dict[str, str]:
    """Write every reader's files. Returns why a peer cannot take part."""
    write_plain(corpus, folder)
    for container in ("npy", "h5"):
        write_store(corpus, folder / f"store-{container}", container)
    lacking = {}
    for peer, write in PEERS.items():
        try:
            write(corpus, folder)
        except ImportError as error:
            lacking[peer] = f"not installed: {error}"
    return lacking


def read_back(folder: Path) -> None:
    """Have all files in the page cache as reading puts them there, and not as they happened to be written."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.read(1 << 24):
                pass


def write_plain(corpus: Corpus, folder: Path) -> None:
    (folder / "videos").mkdir()
    flat = np.concatenate([corpus.video(number) for number in range(len(corpus.rows_V))])
    np.save(folder / "flat.npy", flat)
    with h5py.File(folder / "flat.h5", "w") as file:
        file["features"] = flat
    with h5py.File(folder / "videos.h5", "w", libver="latest") as file:
        for number in range(len(corpus.rows_V)):
            file[f"{number:06d}"] = corpus.video(number)
            np.save(folder / "videos" / f"{number:06d}.npy", corpus.video(number))


def write_store(corpus: Corpus, path: Path, container: Container) -> None:
    with open_writer(path) as writer:
        write_rows(writer, len(corpus.rows_V), corpus.video, SHARDS, container)


def write_mds(corpus: Corpus, folder: Path) -> None:
    from streaming import MDSWriter

    with MDSWriter(columns={"x": f"ndarray:float16:{STEPS},{DIM}"}, out=str(folder / "mds")) as writer:
        for sample in corpus.samples():
            writer.write({"x": sample})


def write_litdata(corpus: Corpus, folder: Path) -> None:
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(folder / "litdata"), chunk_bytes="64MB")
    for number, sample in enumerate(corpus.samples()):
        writer[number] = sample
    writer.done()
    writer.merge()


def write_webdataset(corpus: Corpus, folder: Path) -> None:
    import webdataset

    with webdataset.TarWriter(str(folder / "windows.tar")) as writer:
        for number, sample in enumerate(corpus.samples()):
            writer.write({"__key__": f"{number:07d}", "bin": sample.tobytes()})


def write_array_record(corpus: Corpus, folder: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(folder / "windows.array_record"), "group_size:1,uncompressed")
    for sample in corpus.samples():
        writer.write(sample.tobytes())
    writer.close()


def write_arrow(corpus: Corpus, folder: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    forms = {"arrow": datasets.Array2D((STEPS, DIM), "float16"), "arrow-raw": datasets.Value("large_binary")}
    for name, form in forms.items():
        samples = [sample if name == "arrow" else sample.tobytes() for sample in corpus.samples()]
        made = datasets.Dataset.from_dict({"x": samples}, features=datasets.Features({"x": form}))
        made.save_to_disk(str(folder / name))


PEERS = {
    "mosaicml-streaming": write_mds, "litdata": write_litdata, "webdataset": write_webdataset,
    "array_record": write_array_record, "datasets": write_arrow,
}  # fmt: skip


def clipmill(container: Container, verify: Verify, mapping: Mapping) -> Callable[[Corpus, Path], Read]:
    def opened(corpus: Corpus, folder: Path) -> Read:
        stream = open_store(folder / f"store-{container}").stream("rows", verify=verify, mapping=mapping)
        rows_B = np.full(BATCH, STEPS)
        return lambda window_B: stream.gather(corpus.video_W[window_B], corpus.start_W[window_B], rows_B, STEPS)[0]

    return opened


def numpy_gather(corpus: Corpus, folder: Path) -> Read:
    flat = np.asarray(np.load(folder / "flat.npy", mmap_mode="r"))
    first_W, place_T = corpus.first_V[corpus.video_W] + corpus.start_W, np.arange(STEPS)
    return lambda window_B: flat[first_W[window_B][:, None] + place_T]


def one_by_one(read: Callable[[int], np.ndarray]) -> Read:
    """Samples into one array, as a collate function would."""

    def batch(window_B: np.ndarray) -> np.ndarray:
        out = np.empty((len(window_B), STEPS, DIM), np.float16)
        for place, window in enumerate(window_B.tolist()):
            out[place] = read(window)
        return out

    return batch


def np_load(corpus: Corpus, folder: Path) -> Read:
    def read(window: int) -> np.ndarray:
        rows = np.load(folder / "videos" / f"{corpus.video_W[window]:06d}.npy", mmap_mode="r")
        start = corpus.start_W[window]
        return np.asarray(rows[start : start + STEPS])

    return one_by_one(read)


def h5py_per_video(corpus: Corpus, folder: Path) -> Read:
    file = h5py.File(folder / "videos.h5", "r")

    def read(window: int) -> np.ndarray:
        start = corpus.start_W[window]
        return np.asarray(file[f"{corpus.video_W[window]:06d}"][start : start + STEPS])

    return one_by_one(read)


def h5py_flat(corpus: Corpus, folder: Path) -> Read:
    rows = h5py.File(folder / "flat.h5", "r")["features"]
    first = (corpus.first_V[corpus.video_W] + corpus.start_W).tolist()
    return one_by_one(lambda window: rows[first[window] : first[window] + STEPS])


def mds(_: Corpus, folder: Path) -> Read:
    from streaming import StreamingDataset

    dataset = StreamingDataset(local=str(folder / "mds"), batch_size=1, shuffle=False)
    return one_by_one(lambda window: dataset[window]["x"])


def litdata(_: Corpus, folder: Path) -> Read:
    from litdata import StreamingDataset

    dataset = StreamingDataset(str(folder / "litdata"), shuffle=False)
    return one_by_one(lambda window: np.asarray(dataset[window]))


def webdataset_stream(_: Corpus, folder: Path) -> Read:
    import webdataset

    def samples() -> Iterator[np.ndarray]:
        while True:
            for sample in webdataset.WebDataset(str(folder / "windows.tar"), shardshuffle=False):
                yield np.frombuffer(sample["bin"], np.float16).reshape(STEPS, DIM)

    stream = samples()
    return one_by_one(lambda _: next(stream))


def array_record(_: Corpus, folder: Path) -> Read:
    from array_record.python.array_record_module import ArrayRecordReader

    reader = ArrayRecordReader(str(folder / "windows.array_record"), ARRAY_RECORD)

    def read(window_B: np.ndarray) -> np.ndarray:
        whole = b"".join(reader.read(window_B.tolist()))
        return np.frombuffer(whole, np.float16).reshape(len(window_B), STEPS, DIM)

    return read


def arrow(_: Corpus, folder: Path) -> Read:
    import datasets

    dataset = datasets.load_from_disk(str(folder / "arrow")).with_format("numpy", dtype=np.float16)
    return lambda window_B: dataset[window_B.tolist()]["x"]


def arrow_raw(_: Corpus, folder: Path) -> Read:
    import datasets

    dataset = datasets.load_from_disk(str(folder / "arrow-raw")).with_format("arrow")

    def read(window_B: np.ndarray) -> np.ndarray:
        column = dataset[window_B.tolist()]["x"].combine_chunks()
        return np.frombuffer(column.buffers()[2], np.float16, len(column) * STEPS * DIM).reshape(-1, STEPS, DIM)

    return read


NUMPY, RAW, UNVERIFIED, VERIFIED = "numpy", "arrow buffer", "clipmill never", "clipmill first"
READERS: dict[str, tuple[Callable[[Corpus, Path], Read], str]] = {
    NUMPY: (numpy_gather, "numpy.load(mmap_mode='r') once, one fancy index a batch"),
    UNVERIFIED: (clipmill("npy", "never", "mmap"), "verify='never', mapping='mmap'"),
    VERIFIED: (
        clipmill("npy", "first", "auto"),
        "verify='first', mapping='auto', the defaults; all blocks read before",
    ),
    "clipmill never auto": (clipmill("npy", "never", "auto"), "verify='never', mapping='auto'"),
    "clipmill first mmap": (clipmill("npy", "first", "mmap"), "verify='first', mapping='mmap'"),
    "clipmill h5": (clipmill("h5", "first", "auto"), "HDF5 shards, the defaults"),
    "clipmill pread": (clipmill("npy", "first", "pread"), "mapping='pread', verify='first'"),
    "clipmill always": (clipmill("npy", "always", "auto"), "verify='always': whole blocks of 64 KiB are hashed"),
    "np.load": (np_load, "a .npy a video, numpy.load(mmap_mode='r') a sample"),
    "h5py per video": (h5py_per_video, "a dataset a video, contiguous, libver='latest', file kept open"),
    "h5py flat": (h5py_flat, "one contiguous dataset, kept open, a slice a sample"),
    "mosaicml-streaming": (mds, "MDS ndarray column with fixed shape, no compression, no hashes, local, dataset[i]"),
    "litdata": (litdata, "64 MB chunks, no compression, local, dataset[i]"),
    "webdataset": (webdataset_stream, "one tar, raw bytes, sequential: it has no random access"),
    "array_record": (array_record, f"group_size:1,uncompressed; {ARRAY_RECORD}; a batch a call"),
    "datasets": (
        arrow,
        "Array2D column of fixed shape, memory-mapped, with_format('numpy', dtype=float16), a batch a call",
    ),
    RAW: (arrow_raw, "large_binary column, with_format('arrow'), its buffer taken by hand: not a documented way"),
}


def work(name: str, folder: Path, videos: int, seconds: float) -> None:
    """In a process of its own: print CPU microseconds a window, and a sum that tells if the windows were right."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    corpus = Corpus(videos)
    read = READERS[name][0](corpus, folder)
    warm(read, np.arange(len(corpus.video_W)))
    batches = corpus.batches(64)
    for window_B in batches[:4]:
        read(window_B)
    # Streams go on where they are: they are compared over the windows that they give by themselves.
    check = read(batches[4]).view(np.uint16).astype(np.int64).sum()
    done, before = 0, time.process_time()
    while time.process_time() - before < seconds:
        read(batches[done % len(batches)])
        done += 1
    print(json.dumps({"us": 1e6 * (time.process_time() - before) / done / BATCH, "check": int(check)}))


def warm(read: Read, windows: np.ndarray) -> None:
    """Read every window once, so that files and what readers remember of them are hot; who is slow gets 2 seconds."""
    before = time.process_time()
    for start in range(0, len(windows) - BATCH + 1, BATCH):
        if time.process_time() - before > 2:
            return
        read(windows[start : start + BATCH])


def measure(name: str, folder: Path, videos: int, seconds: float) -> dict[str, float] | str:
    command = [sys.executable, __file__, "--work", name, "--folder", str(folder)]
    command += ["--videos", str(videos), "--seconds", str(seconds)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def compete(folder: Path, videos: int, rounds: int, seconds: float, lacking: dict[str, str]) -> dict[str, float]:
    """Median microseconds of each reader; what fails is put into `lacking` with its reason."""
    times: dict[str, list[float]] = {name: [] for name in READERS if name not in lacking}
    checks: dict[str, float] = {}
    for _ in range(rounds):
        for name in times:
            found = measure(name, folder, videos, seconds) if name not in lacking else ""
            if isinstance(found, str):
                lacking.setdefault(name, found)
                continue
            times[name].append(found["us"])
            checks[name] = found["check"]
    for name in checks:
        if name != "webdataset" and checks[name] != checks[NUMPY]:
            lacking[name] = "gave other windows than numpy"
    return {name: statistics.median(runs) for name, runs in times.items() if name not in lacking}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="300 videos and one short round, for a first look")
    parser.add_argument("--work", choices=list(READERS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--videos", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work, arguments.folder, arguments.videos, arguments.seconds)
        return
    videos, rounds, seconds = (300, 1, 0.2) if arguments.quick else (2000, 3, 0.5)
    with tempfile.TemporaryDirectory() as name:
        lacking = write_all(Corpus(videos), Path(name))
        read_back(Path(name))
        found = compete(Path(name), videos, rounds, seconds, lacking)
    report(found, lacking)


def report(found: dict[str, float], lacking: dict[str, str]) -> None:
    for name, us in sorted(found.items(), key=lambda item: item[1]):
        print(f"{name:20} {us:8.2f} us a window {us / found[NUMPY]:7.1f} x numpy")
    for name, reason in lacking.items():
        print(f"{name:20} not measured: {reason}")
    peers = {name: us for name, us in found.items() if name not in (NUMPY, RAW) and not name.startswith("clipmill")}
    best = min(peers, key=lambda name: peers[name])
    ratios = {
        "peers": peers[best] / found[VERIFIED],
        "unverified": found[UNVERIFIED] / found[NUMPY],
        "verified": found[VERIFIED] / found[NUMPY],
    }
    met = ratios["peers"] >= GOALS["peers"] and all(ratios[k] <= GOALS[k] for k in ("unverified", "verified"))
    print(f"best peer {best}: {ratios['peers']:.1f} x ours")
    if RAW in found:
        print(f"Arrow's buffer, windows cut beforehand, unverified, by hand: {found[RAW] / found[VERIFIED]:.2f} x ours")
    versions = {peer: importlib.metadata.version(peer) for peer in PEERS if peer not in lacking}
    settings = {name: setting for name, (_, setting) in READERS.items()}
    summary = {"name": "windows", "ratio": round(ratios["peers"], 2), "goal": GOALS["peers"], "met": met}
    print(json.dumps({**summary, "ratios": ratios, "goals": GOALS, "us": found, "not_measured": lacking,
                      "versions": versions, "settings": settings}))  # fmt: skip


if __name__ == "__main__":
    main()
