"""`train compare` that is told to stop: the run in progress is saved, and the same command goes on with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from train.compare_runs import read_cost

ROOT = Path(__file__).resolve().parents[2]
STEPS = 600
CONFIG = """
store: {store}
run: {run}
model: {{dim: 8, text: {{name: words, word_dim: 6, hidden: 8}}}}
batch_size: 8
steps: 600
log_every: 1
eval_every: 0
device: cpu
"""


def compare(config: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "train", "compare", str(config)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.full
def test_a_signal_saves_and_the_same_command_goes_on(small_store, tmp_path):
    store = small_store(tmp_path / "store", splits={"train": 16, "val": 8})
    config, run = tmp_path / "one.yaml", tmp_path / "run"
    config.write_text(CONFIG.format(store=store, run=run))
    first = compare(config)
    for line in first.stdout:
        if line.startswith("step 20/"):
            first.send_signal(signal.SIGTERM)
            break
    _, told = first.communicate(timeout=120)
    assert first.returncode == 4, told
    assert told.startswith("error: one: stopped by SIGTERM after step")
    assert told.endswith("run the same command again to go on\n")
    (part,) = read_cost(run).parts
    assert part.first == 0
    assert 20 <= part.last < STEPS

    second = compare(config)
    printed, told = second.communicate(timeout=240)
    assert second.returncode == 0, told
    assert f"after step {part.last}" in printed
    parts = read_cost(run).parts
    assert [(part.first, part.last) for part in parts] == [(0, part.last), (part.last, STEPS)]
    assert read_cost(run).seconds(STEPS) == parts[0].seconds + parts[1].seconds
    row = printed.splitlines()[-2]
    assert row.startswith("one ")
    assert row.split()[-2:] == [f"{max(part.peak_memory for part in parts) / 2**20:,.0f}", "MiB"]
