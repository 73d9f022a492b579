"""What may befall a loader and its processes: each is a clear error in its place, and nothing is left behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from shared.errors import DamageFound, RunFailed, StoreError
from shared.store import open_store
from train.data import WindowData
from train.delivery.config import DataConfig
from train.delivery.loader import Loader
from train.delivery.windows import first_captions

ROOT = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).with_name("delivery_child.py")


@pytest.fixture
def path(tmp_path, small_store):
    return small_store(tmp_path / "store")


def opened(path, **config):
    return WindowData(open_store(path), "default", "train", config=DataConfig(**config))


def loader(data, workers, prefetch=1):
    return Loader([data], [data.shape(8, 3)], config=DataConfig(workers=workers, prefetch=prefetch))


def selector(data):
    return lambda step: first_captions((np.arange(8) * 7 + step) % len(data), data.bag_W, 3)


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGBUS, marks=pytest.mark.full)])
def test_a_dead_worker_is_an_error_that_names_its_signal(path, number):
    data = opened(path)
    chosen = selector(data)
    with loader(data, 2) as batches:
        taken = batches.batches(chosen, 0, 50)
        next(taken)
        dead = batches._maker._workers[1]
        os.kill(dead.pid, number)
        delivered = []
        with pytest.raises(RunFailed, match=f"data worker 2 of 2 .process {dead.pid}. was killed by {number.name}: "):
            delivered.extend(batch.video_BTD.clone() for batch in taken)
        # What it had made before it died, and the other one until it was the dead one's turn.
        assert len(delivered) < 4
        for step, video_BTD in enumerate(delivered, start=1):
            assert torch.equal(video_BTD, data.batch(chosen(step)).video_BTD)


def test_a_worker_ignores_what_asks_the_training_process_to_stop(path):
    data = opened(path)
    with loader(data, 1) as batches:
        taken = batches.batches(selector(data), 0, 9)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
            os.kill(batches._maker._workers[0].pid, number)
        assert sum(map(len, taken)) == 9 * 8


@contextmanager
def child_process(path):
    """A process group of its own, as a shell gives to a command, and its workers; it ends with the context."""
    with subprocess.Popen(
        [sys.executable, str(CHILD), str(path), "2"],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, process_group=0,
        # A shell that was put into the background has its children ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as child:  # fmt: skip
        try:
            workers = [psutil.Process(int(pid)) for pid in child.stdout.readline().split()]
            assert len(workers) == 2
            yield child, workers
        finally:
            child.kill()


def test_workers_die_with_a_killed_parent_and_leave_nothing(path):
    with child_process(path) as (child, workers):
        for pid in (child.pid, *(worker.pid for worker in workers)):
            maps = Path(f"/proc/{pid}/maps").read_text()
            # Memory without a name is gone with those who have it; other programs come and go in /dev/shm.
            assert "memfd:clipmill ring" in maps
            assert "/dev/shm" not in maps
        child.kill()
        _, errors = child.communicate()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive
    assert errors == ""


def test_one_interrupt_ends_parent_and_workers(path):
    with child_process(path) as (child, workers):
        os.killpg(child.pid, signal.SIGINT)
        _, errors = child.communicate(timeout=60)
    assert child.returncode != 0
    assert errors.count("Traceback") == errors.count("KeyboardInterrupt") == 1
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.full)])
@pytest.mark.parametrize("pattern", ["features/default/*.npy", "manifests/*/tokens.npy", "manifests/*/offsets.npy"])
def test_a_file_that_is_cut_meanwhile_is_named(path, workers, pattern):
    data = opened(path)
    with loader(data, workers) as batches:
        taken = batches.batches(selector(data), 0, 200)
        next(taken)
        (file,) = path.glob(pattern)
        os.truncate(file, file.stat().st_size // 2)
        with pytest.raises(DamageFound, match=re.escape(str(file))):
            sum(map(len, taken))


def test_a_store_that_is_another_one_by_then_is_refused(path, small_store):
    data = opened(path)
    shutil.rmtree(path)
    small_store(path, splits={"train": 9})
    with loader(data, 1) as batches, pytest.raises(StoreError, match="was changed while it was in use"):
        next(batches.batches(lambda _: first_captions(np.arange(8), np.ones(99, int), 3), 0, 1))


def test_a_bug_in_a_worker_shows_its_traceback(path, capfd):
    data = opened(path)
    beyond = first_captions(np.arange(8), data.bag_W, 3)
    beyond.window_B[3] = 10_000
    with (
        loader(data, 1) as batches,
        pytest.raises(RunFailed, match=r"data worker 1 of 1 .* ended with code 1: its own message is above"),
    ):
        next(batches.batches(lambda _: beyond, 0, 1))
    assert "IndexError: windows 0 to 10000 are asked for, the split has 72" in capfd.readouterr().err


def test_workers_do_without_torch(path, tmp_path, monkeypatch):
    """A module of that name that cannot be imported stands before the real one where workers look."""
    (tmp_path / "wall" / "torch").mkdir(parents=True)
    (tmp_path / "wall" / "torch" / "__init__.py").write_text("raise ImportError('a worker reached for torch')")
    monkeypatch.syspath_prepend(str(tmp_path / "wall"))
    data = opened(path)
    chosen = selector(data)
    with loader(data, 1) as batches:
        for step, batch in enumerate(batches.batches(chosen, 0, 3)):
            assert torch.equal(batch.tokens_BKL, data.batch(chosen(step)).tokens_BKL)


def test_no_descriptor_and_no_process_is_left(path):
    data = opened(path)
    data.batch(selector(data)(0))
    before = list(Path("/proc/self/fd").iterdir())
    children = psutil.Process().children()
    for workers in (0, 1):
        with loader(data, workers) as batches:
            next(batches.batches(selector(data), 0, 5))
    del batches
    assert len(list(Path("/proc/self/fd").iterdir())) == len(before)
    assert psutil.Process().children() == children
