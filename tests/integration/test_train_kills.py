"""A job of two ranks under torchrun that is killed at random moments ends with the weights of one that never was."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from train.checkpoint import checkpoint_path, last_checkpoint, load_checkpoint

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("fit_worker.py")
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
CONFIG = """
model: {dim: 8, video: {name: attention, dropout: 0.2}, text: {name: words, word_dim: 6, hidden: 12},
        temperature: {learned: true}}
order: {unit: window, candidates: 2, captions: random}
optim: {lr: 0.02}
negatives: {name: moco, size: 16, momentum: 0.9}
batch_size: 12
log_every: 1
eval_every: 4
checkpoint: {every_epochs: 0, every_steps: 4}
device: cpu
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory, small_store):
    folder = tmp_path_factory.mktemp("kills")
    path = folder / "fit.yaml"
    path.write_text(f"store: {small_store(folder / 'store')}\nrun: {folder / 'run'}\n{CONFIG}")
    return path


def started(config: Path, run: Path, steps: int) -> subprocess.Popen[bytes]:
    command = [*TORCHRUN, "-m", "train", "fit", str(config), f"run={run}", f"steps={steps}"]
    with (run / "said.txt").open("ab") as said:
        return subprocess.Popen([sys.executable, *command], cwd=ROOT, env=ENVIRONMENT, stdout=said, stderr=said)


def steps_logged(run: Path) -> int:
    path = run / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return max((json.loads(line)["step"] for line in lines), default=0)


def kill(job: subprocess.Popen[bytes]) -> None:
    """torchrun first, so that it cannot tell its ranks; they are no children of a group that one signal reaches."""
    family = [psutil.Process(job.pid), *psutil.Process(job.pid).children(recursive=True)]
    for process in family:
        # One that has just ended by itself is as good as killed.
        if process.is_running():
            process.kill()
    psutil.wait_procs(family, timeout=60)
    job.wait()


def killed_at_random(config: Path, run: Path, steps: int, kills: int, draw: random.Random) -> int:
    """Run until done; returns how often it was killed: some steps after its last kill, or as it starts."""
    done_kills = 0
    while True:
        job = started(config, run, steps)
        after = steps_logged(run) + draw.randint(0, 2 * steps // kills) if done_kills < kills else steps + 1
        while job.poll() is None and steps_logged(run) < after:
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.03))
        if job.poll() is not None:
            assert job.returncode == 0, (run / "said.txt").read_text()
            return done_kills
        kill(job)
        done_kills += 1


@pytest.mark.parametrize(
    ("steps", "kills"), [(60, 3), pytest.param(400, 20, marks=[pytest.mark.full, pytest.mark.timeout(1800)])]
)
def test_killed_at_random_times_and_resumed_is_uninterrupted(config, tmp_path, steps, kills):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    assert started(config, whole, steps).wait(timeout=280) == 0, (whole / "said.txt").read_text()
    assert killed_at_random(config, broken, steps, kills, random.Random(steps)) >= 1
    one, other = (load_checkpoint(checkpoint_path(run, steps)) for run in (whole, broken))
    assert one["model"].keys() == other["model"].keys()
    for name, weight in one["model"].items():
        assert torch.equal(weight, other["model"][name]), name
    for name, state in one["optimizer"]["state"].items():
        for key, value in state.items():
            assert torch.equal(value, other["optimizer"]["state"][name][key]), (name, key)
    assert torch.equal(one["random"], other["random"])
    assert one["validation"] == other["validation"]


@pytest.mark.full
def test_a_rank_that_hangs_ends_the_job_within_the_set_time(config, tmp_path):
    """Stopped, not killed: its connections stay open, and nothing but the time tells the other one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [str(WORKER), str(config), "SIGSTOP", "5", "1", f"run={tmp_path}", "steps=9", "timeout_s=3"]
    ranks = [
        subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=ENVIRONMENT | {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
            | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        _, said = ranks[0].communicate(timeout=120)
    finally:
        for one in ranks:
            one.send_signal(signal.SIGKILL)
            one.communicate()
    assert ranks[0].returncode == 5, said
    assert "another rank is gone, or did not come within timeout_s=3" in said
    assert json.loads((tmp_path / "exit.json").read_text())["code"] == 5
    assert last_checkpoint(tmp_path) == checkpoint_path(tmp_path, 4)
