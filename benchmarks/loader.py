"""How fast batches reach a training process, side by side: `python benchmarks/loader.py [--quick]`.

Batches of 256 windows, 10 x 512 float16 and 5 x 32 token ids each, in random order, from 2,000 videos of different
lengths; page cache hot, the consumer does nothing else. The figure is microseconds of the clock for a sample, beside
CPU microseconds of all processes; each contestant runs in a process of its own, rounds go over all, and medians
count. Time is taken within epochs: how long a loader takes to begin a new one is left out, for those that stop there.
Peers are set as their documentation advises without a network (printed in the JSON), and each with the number of
workers that suits it best. What they hold was cut and padded beforehand; ours is cut, padded and masked when it is
read, checked when it is read for the first time, and comes in an order that any step can be resumed in.

Then the share of time that training would wait: a step is a sleep of 10 ms. The last line is JSON: ratio is the best
peer's time over ours, each with the workers that suit it best; default_ratio over that of our default. The goal for
waiting is asked of both.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from loader_corpus import CANDIDATES, DIM, PEERS, STEPS, TOKENS, Corpus, write_plain, write_store

from shared.store import open_store
from train.data import WindowData
from train.delivery.config import DataConfig
from train.delivery.loader import Loader
from train.order import BatchOrder, OrderConfig
from train.sources import order_of

BATCH, GOALS = 256, {"peers": 4.0, "waiting": 0.02}
# Batches at the start of an epoch that are not counted: worker processes fill their queues then.
BEGINNING = 4
# An epoch of batches, however they are held.
Epoch = Callable[[], Iterator[Any]]


def our_loader(folder: Path, workers: int) -> tuple[Loader, BatchOrder]:
    data = WindowData(open_store(folder / "store"), "default", "train")
    order = order_of(data, OrderConfig(unit="window", candidates=CANDIDATES), BATCH, 0)
    shapes = [data.shape(shape.samples, CANDIDATES) for shape in order.shapes()]
    return Loader([data], shapes, config=DataConfig(workers=workers)), order


def clipmill(workers: int) -> Callable[[Path], Epoch]:
    def opened(folder: Path) -> Epoch:
        loader, order = our_loader(folder, workers)
        steps_of_epoch = order.steps_before(1)
        steps = itertools.count(step=steps_of_epoch)

        def epoch() -> Iterator[Any]:
            start = next(steps)
            return ((b.video_BTD, b.tokens_BKL) for b in loader.batches(order.batch, start, start + steps_of_epoch))

        return epoch

    return opened


def window_dataset(workers: int) -> Callable[[Path], Epoch]:
    def opened(folder: Path) -> Epoch:
        from torch.utils.data import DataLoader

        from train.data import WindowDataset, whole_batch

        loader = DataLoader(WindowDataset(folder / "store"), collate_fn=whole_batch, **torch_settings(workers))
        return lambda: ((batch["video_BTD"], batch["tokens_BKL"]) for batch in loader)

    return opened


def dataloader(workers: int) -> Callable[[Path], Epoch]:
    """What a project writes first: a sample a call, from mapped arrays, and the default collation."""

    def opened(folder: Path) -> Epoch:
        from torch.utils.data import DataLoader, Dataset

        class Samples(Dataset[tuple[np.ndarray, np.ndarray]]):
            def __init__(self) -> None:
                # Plain arrays: NumPy's class of mapped ones costs three times as much a sample.
                self.rows, self.tokens, self.first_W = (
                    np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in ("rows", "tokens", "first")
                )

            def __len__(self) -> int:
                return len(self.first_W)

            def __getitem__(self, window: int) -> tuple[np.ndarray, np.ndarray]:
                first = self.first_W[window]
                return np.array(self.rows[first : first + STEPS]), np.array(self.tokens[window])

        loader = DataLoader(Samples(), **torch_settings(workers))
        return lambda: iter(loader)

    return opened


def torch_settings(workers: int) -> dict[str, Any]:
    lasting = {"persistent_workers": True, "prefetch_factor": 2} if workers else {}
    return {"batch_size": BATCH, "shuffle": True, "drop_last": True, "num_workers": workers, **lasting}


def litdata(workers: int) -> Callable[[Path], Epoch]:
    def opened(folder: Path) -> Epoch:
        from litdata import StreamingDataLoader, StreamingDataset

        dataset = StreamingDataset(str(folder / "litdata"), shuffle=True, drop_last=True)
        lasting = {"persistent_workers": True} if workers else {}
        loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=workers, drop_last=True, **lasting)
        return lambda: ((batch["x"], batch["t"]) for batch in loader)

    return opened


def mosaicml(workers: int) -> Callable[[Path], Epoch]:
    def opened(folder: Path) -> Epoch:
        from streaming import StreamingDataset
        from torch.utils.data import DataLoader

        dataset = StreamingDataset(local=str(folder / "mds"), shuffle=True, batch_size=BATCH)
        settings = torch_settings(workers) | {"shuffle": False}
        loader = DataLoader(dataset, **settings)
        return lambda: ((batch["x"], batch["t"]) for batch in loader)

    return opened


def webdataset(workers: int) -> Callable[[Path], Epoch]:
    def opened(folder: Path) -> Epoch:
        import webdataset

        def arrays(sample: dict[str, bytes]) -> tuple[np.ndarray, np.ndarray]:
            rows = np.frombuffer(sample["x"], np.float16).reshape(STEPS, DIM)
            return rows, np.frombuffer(sample["t"], np.int32).reshape(CANDIDATES, TOKENS)

        shards = sorted(map(str, (folder / "tar").glob("*.tar")))
        samples = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(1000).map(arrays)
        batches, lasting = samples.batched(BATCH, partial=False), {"persistent_workers": True} if workers else {}
        loader = webdataset.WebLoader(batches, batch_size=None, num_workers=workers, **lasting)
        return lambda: iter(loader)

    return opened


def arrow(workers: int) -> Callable[[Path], Epoch]:
    def opened(folder: Path) -> Epoch:
        import datasets
        from torch.utils.data import BatchSampler, DataLoader, RandomSampler

        dataset = datasets.load_from_disk(str(folder / "arrow")).with_format("torch")
        sampler = BatchSampler(RandomSampler(dataset), BATCH, drop_last=True)
        settings = {"persistent_workers": True, "prefetch_factor": 2} if workers else {}
        loader = DataLoader(dataset, sampler=sampler, batch_size=None, num_workers=workers, **settings)
        return lambda: ((batch["x"], batch["t"]) for batch in loader)

    return opened


OURS, DEFAULT = "clipmill", "clipmill thread"
SETTINGS = {
    DEFAULT: "train.delivery.Loader, data.workers=0, the defaults: verify='first', mapping='auto'",
    OURS: "the same with worker processes",
    "WindowDataset": "train.data.WindowDataset, collate_fn=whole_batch, in torch's DataLoader",
    "DataLoader": "__getitem__ on mapped .npy files, default collation; persistent workers, prefetch_factor 2",
    "litdata": "64 MB chunks, no compression, StreamingDataset(shuffle=True) in StreamingDataLoader",
    "mosaicml-streaming": "MDS, fixed shapes, no compression, StreamingDataset(shuffle=True) in DataLoader",
    "webdataset": "16 tars of raw bytes, shuffle(1000), batched in the workers, WebLoader(batch_size=None)",
    "datasets": "Array2D of fixed shape, with_format('torch') (makes float32), a BatchSampler as sampler of DataLoader",
}
KINDS: dict[str, tuple[Callable[[int], Callable[[Path], Epoch]], tuple[int, ...]]] = {
    OURS: (clipmill, (0, 1, 2)),
    "WindowDataset": (window_dataset, (0, 1, 2)),
    "DataLoader": (dataloader, (0, 1, 2, 4)),
    "litdata": (litdata, (0, 1, 2)),
    "mosaicml-streaming": (mosaicml, (0, 1, 2)),
    "webdataset": (webdataset, (0, 1, 2)),
    "datasets": (arrow, (0, 1, 2)),
}
CONTESTANTS = {
    DEFAULT if (kind, workers) == (OURS, 0) else f"{kind} {workers}": make(workers)
    for kind, (make, counts) in KINDS.items()
    for workers in counts
}


def work(name: str, folder: Path, seconds: float) -> None:
    """In a process of its own: print microseconds a sample, of the clock and of all processors."""
    epoch = CONTESTANTS[name](folder)
    check(next(epoch()))
    for _ in epoch():
        pass  # every window once: files and what readers remember of them are hot
    clock = cpu = 0.0
    batches = 0
    while clock < seconds:
        running = epoch()
        for _ in itertools.islice(running, BEGINNING):
            pass
        begin, used = time.perf_counter(), cpu_seconds()
        batches += sum(1 for _ in running)
        clock, cpu = clock + time.perf_counter() - begin, cpu + cpu_seconds() - used
    print(json.dumps({"us": 1e6 * clock / batches / BATCH, "cpu_us": 1e6 * cpu / batches / BATCH}))
    sys.stdout.flush()
    os._exit(0)  # some peers take seconds to end


def check(batch: Any) -> None:
    rows, tokens = batch
    assert tuple(rows.shape) == (BATCH, STEPS, DIM), rows.shape
    assert "float" in str(rows.dtype), rows.dtype
    assert tuple(tokens.shape) == (BATCH, CANDIDATES, TOKENS), tokens.shape
    assert (rows != 0).all()
    assert (tokens[:, 0, 0] != 0).all()


def cpu_seconds() -> float:
    here = psutil.Process()
    times = [process.cpu_times() for process in (here, *here.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def wait(name: str, folder: Path, steps: int) -> None:
    """In a process of its own: print the share of time spent waiting for batches where a step is a sleep.

    One iterator for all steps, through the borders of epochs, as `train fit` has it.
    """
    loader, order = our_loader(folder, 0 if name == DEFAULT else int(name.rpartition(" ")[2]))
    first = order.steps_before(1)
    for _ in loader.batches(order.batch, 0, first):
        pass
    running = loader.batches(order.batch, first, first + 1 + steps)
    next(running)
    time.sleep(0.1)
    waited, begin = 0.0, time.perf_counter()
    for _ in range(steps):
        before = time.perf_counter()
        batch = next(running)
        waited += time.perf_counter() - before
        time.sleep(0.010)
        del batch
    print(json.dumps({"waiting": waited / (time.perf_counter() - begin)}))
    sys.stdout.flush()
    os._exit(0)


def run(*arguments: str) -> dict[str, float] | str:
    """What a child measured, or why it could not."""
    root = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root), "HF_DATASETS_OFFLINE": "1"}
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compete(folder: Path, rounds: int, seconds: float, lacking: dict[str, str]) -> dict[str, dict[str, float]]:
    """Medians of each contestant; what fails is put into `lacking` with its reason."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS if kind_of(name) not in lacking}
    for _ in range(rounds):
        for name in runs:
            found = run("--work", name, "--folder", str(folder), "--seconds", str(seconds))
            if isinstance(found, str):
                lacking[name] = found
            else:
                runs[name].append(found)
    return {
        name: {key: statistics.median(one[key] for one in several) for key in ("us", "cpu_us")}
        for name, several in runs.items()
        if len(several) == rounds
    }


def kind_of(name: str) -> str:
    return name.rpartition(" ")[0]


def waiting(folder: Path, rounds: int, steps: int) -> dict[str, float]:
    names = [name for name in CONTESTANTS if kind_of(name) == OURS]
    shares: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            found = run("--wait", name, "--folder", str(folder), "--steps", str(steps))
            if isinstance(found, str):
                raise SystemExit(f"{name}: {found}")
            shares[name].append(found["waiting"])
    return {name: statistics.median(several) for name, several in shares.items()}


def write_all(corpus: Corpus, folder: Path) -> dict[str, str]:
    """Write every contestant's files. Returns why a peer cannot take part."""
    write_store(corpus, folder / "store")
    write_plain(corpus, folder)
    lacking = {}
    for peer, write in PEERS.items():
        try:
            write(corpus, folder)
        except ImportError as error:
            lacking[peer] = f"not installed: {error}"
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        path.read_bytes()
    return lacking


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="300 videos and one short round, for a first look")
    parser.add_argument("--work", choices=list(CONTESTANTS), help=argparse.SUPPRESS)
    parser.add_argument("--wait", choices=list(CONTESTANTS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work, arguments.folder, arguments.seconds)
    if arguments.wait:
        wait(arguments.wait, arguments.folder, arguments.steps)
    videos, rounds, seconds, steps = (300, 1, 0.2, 100) if arguments.quick else (2000, 3, 1.0, 500)
    with tempfile.TemporaryDirectory() as name:
        lacking = write_all(Corpus(videos), Path(name))
        found = compete(Path(name), rounds, seconds, lacking)
        shares = waiting(Path(name), rounds, steps)
    report(found, shares, lacking)


def report(found: dict[str, dict[str, float]], shares: dict[str, float], lacking: dict[str, str]) -> None:
    for name, one in sorted(found.items(), key=lambda item: item[1]["us"]):
        print(f"{name:22} {one['us']:8.2f} us a sample {one['cpu_us']:8.2f} us of CPU")
    for name, reason in lacking.items():
        print(f"{name:22} not measured: {reason}")
    for name, share in shares.items():
        print(f"{name:22} {share:7.2%} of the time waiting, with steps of 10 ms")
    peers = {name: one["us"] for name, one in found.items() if kind_of(name) not in (OURS, "WindowDataset")}
    best = min(peers, key=lambda name: peers[name])
    own = min((name for name in found if kind_of(name) == OURS), key=lambda name: found[name]["us"])
    ratio, default_ratio = peers[best] / found[own]["us"], peers[best] / found[DEFAULT]["us"]
    print(f"best peer {best}: {ratio:.1f} x {own}, {default_ratio:.1f} x {DEFAULT}")
    versions = {peer: importlib.metadata.version(peer) for peer in ("torch", *PEERS) if peer not in lacking}
    met = ratio >= GOALS["peers"] and max(shares[own], shares[DEFAULT]) < GOALS["waiting"]
    summary = {"name": "loader", "ratio": round(ratio, 2), "goal": GOALS["peers"], "met": met}
    chosen = {"default_ratio": round(default_ratio, 2), "best_peer": best, "ours": own}
    print(json.dumps({**summary, **chosen, "goals": GOALS, "samples": found, "waiting": shares, "not_measured": lacking,
                      "cores": len(os.sched_getaffinity(0)), "versions": versions, "settings": SETTINGS}))  # fmt: skip


if __name__ == "__main__":
    main()
