from __future__ import annotations

import subprocess
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from shared.errors import EnvironmentLacking
from train.health import Sign
from train.runlog import RunLog


def steps(run, tag):
    found = EventAccumulator(str(run / "tensorboard"))
    found.Reload()
    return [(event.step, pytest.approx(event.value)) for event in found.Scalars(tag)]


def logged(run, begin, end):
    log = RunLog(run, active=True, tensorboard=True)
    log.begin(begin)
    for step in range(begin + 1, end + 1):
        log.write({"step": step, "loss": 1 / step, "rank_losses": [1.0, step], "note": None})
    log.write({"step": end, "validation": {"text_to_video": {"R@10": 0.5}}})
    log.flush()
    return log


def test_a_resumed_run_has_every_step_once(tmp_path):
    logged(tmp_path, 0, 5).close()
    log = logged(tmp_path, 3, 7)
    log.warn(7, [Sign("collapse", "all alike")])
    log.close()
    assert steps(tmp_path, "train/loss") == [(step, 1 / step) for step in range(1, 8)]
    assert steps(tmp_path, "train/rank_losses/1")[-1] == (7, 7.0)
    assert steps(tmp_path, "validation/text_to_video/R@10") == [(7, 0.5)]


def test_what_was_flushed_is_there_without_an_end(tmp_path):
    log = logged(tmp_path, 0, 4)
    assert [step for step, _ in steps(tmp_path, "train/loss")] == [1, 2, 3, 4]
    log.close()


def test_other_ranks_and_runs_without_it_write_nothing(tmp_path):
    for active, wanted in ((False, True), (True, False)):
        log = RunLog(tmp_path, active, wanted)
        log.begin(0)
        log.flush()
        log.close()
    assert not (tmp_path / "tensorboard").exists()


def test_absent_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(EnvironmentLacking, match=r"tensorboard=true, .* pip install 'clipmill\[train\]'"):
        RunLog(tmp_path, active=True, tensorboard=True).begin(0)


def test_nothing_of_it_is_imported_when_off():
    code = "import sys, train.loop; print([name for name in sys.modules if 'tensorboard' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['train.tensorboard_files']"
