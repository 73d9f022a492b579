"""Two jobs and one run folder: the second is refused with nothing of the first touched, on any of its ranks."""

from __future__ import annotations

import errno
import fcntl
import json
import os

import pytest

from shared.config import load_config
from shared.errors import RequestError, RunFailed
from train.config import FitConfig
from train.loop import fit
from train.run_lease import is_others, run_lease
from train.stopping import _failures_recorded, recorded_exit, recorded_refusal


@pytest.fixture
def job(monkeypatch):
    """`job(port, rank)`: this process is a rank of the job with that port; without a rank, a process by itself."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)

    def become(port, rank=None):
        monkeypatch.setenv("MASTER_ADDR", "localhost")
        monkeypatch.setenv("MASTER_PORT", str(port))
        if rank is not None:
            monkeypatch.setenv("RANK", str(rank))

    return become


def files(run):
    return {path.name: path.read_bytes() for path in run.iterdir() if path.name != ".lease"}


def test_a_second_run_is_refused_with_the_first_named_and_nothing_touched(tmp_path, small_store):
    run = tmp_path / "run"
    settings = {"store": small_store(tmp_path / "store"), "run": run, "batch_size": 12, "steps": 1, "device": "cpu"}
    with recorded_exit(run):
        (run / "exit.json").write_text("of the first")
        before = files(run)
        expected = rf"run folder {run} is being trained in by process {os.getpid()} on .*; wait for it, .* run=PATH"
        with pytest.raises(RequestError, match=expected):
            fit(FitConfig.model_validate(settings))
        assert files(run) == before
        assert (run / ".lease").exists()
        (run / "exit.json").unlink()
    assert [path.name for path in run.iterdir()] == ["exit.json"]
    assert json.loads((run / "exit.json").read_text())["code"] == 0


def test_further_ranks_of_a_refused_job_are_refused_and_record_nothing(tmp_path, job):
    job(1, 0)
    with recorded_exit(tmp_path):
        job(2, 1)
        with pytest.raises(RequestError, match=f"trained in by process {os.getpid()} on "), recorded_exit(tmp_path):
            pytest.fail("it trains")
        assert files(tmp_path) == {}
        job(1, 1)
        with pytest.raises(RunFailed), recorded_exit(tmp_path):
            raise RunFailed("of the job that has it")
    assert json.loads((tmp_path / "exit.json").read_text())["message"] == "of the job that has it"


def test_a_rank_that_came_before_the_job_that_has_the_folder_records_nothing(tmp_path, job):
    job(1, 0)
    with run_lease(tmp_path, 0):
        job(2, 1)
        with pytest.raises(RunFailed), _failures_recorded(tmp_path, 1):
            raise RunFailed("of the refused job")
    assert files(tmp_path) == {}


def test_a_refused_config_is_not_recorded_where_another_job_trains(tmp_path, job):
    config = tmp_path / "fit.yaml"
    config.write_text(f"run: {tmp_path / 'run'}\nstpes: 3\n")
    (tmp_path / "run").mkdir()
    job(1, 0)
    with run_lease(tmp_path / "run", 0):
        job(2, 0)
        with pytest.raises(RequestError, match="stpes"), recorded_refusal(config, []):
            load_config(config, FitConfig)
        assert files(tmp_path / "run") == {}


def test_whose_lease_it_is(tmp_path, job):
    assert not is_others(tmp_path)
    with run_lease(tmp_path, 0):
        assert is_others(tmp_path)
    job(1, 0)
    with run_lease(tmp_path, 1):
        assert not (tmp_path / ".lease").exists()
    with run_lease(tmp_path, 0):
        assert not is_others(tmp_path)
        job(2, 0)
        assert is_others(tmp_path)


def test_a_file_system_without_locks_is_warned_of_and_trained_on(tmp_path, job, monkeypatch, capsys):
    def lockless(descriptor, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", lockless)
    job(1, 0)
    with recorded_exit(tmp_path):
        assert not is_others(tmp_path)
        assert "cannot be locked: Function not implemented, and two processes" in capsys.readouterr().err
        job(1, 1)
        with recorded_exit(tmp_path):
            pass
        job(1, 0)
    assert json.loads((tmp_path / "exit.json").read_text())["code"] == 0
