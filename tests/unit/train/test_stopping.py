from __future__ import annotations

import json
import os
import signal

import pytest
import torch
import torch.distributed as dist

from shared.config import load_config
from shared.errors import EnvironmentLacking, RequestError, RunFailed, StoppedEarly
from train.config import FitConfig
from train.distributed import World
from train.stopping import StopSignals, lost_rank_fails, recorded_exit, recorded_refusal

ALONE = World(0, 1, 0, torch.device("cpu"))


def record(run):
    assert sorted(path.name for path in run.iterdir()) == ["exit.json"]
    return json.loads((run / "exit.json").read_text())


def test_success_and_failures_are_recorded_anew(tmp_path):
    run = tmp_path / "deep" / "run"
    with pytest.raises(EnvironmentLacking), recorded_exit(run):
        raise EnvironmentLacking("no weights")
    assert record(run) == {"code": 3, "message": "no weights", "rank": 0}
    with recorded_exit(run):
        pass
    assert record(run) == {"code": 0, "message": "done", "rank": 0}
    with pytest.raises(StoppedEarly, match="interrupted"), recorded_exit(run):
        raise KeyboardInterrupt
    assert record(run)["code"] == 4
    with pytest.raises(ZeroDivisionError), recorded_exit(run):
        raise ZeroDivisionError("a bug")
    assert record(run) == {"code": 1, "message": "ZeroDivisionError: a bug", "rank": 0}


def test_the_first_rank_that_fails_is_the_one_recorded(tmp_path, monkeypatch):
    for name, value in (("MASTER_ADDR", "localhost"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)

    def rank_one_fails_first():
        monkeypatch.setenv("RANK", "1")
        with pytest.raises(RequestError), recorded_exit(tmp_path):
            raise RequestError("of rank 1")
        monkeypatch.setenv("RANK", "0")
        raise RunFailed("because rank 1 is gone")

    with pytest.raises(RunFailed), recorded_exit(tmp_path):
        rank_one_fails_first()
    assert record(tmp_path) == {"code": 2, "message": "of rank 1", "rank": 1}


def test_an_ending_that_cannot_be_written_does_not_hide_the_ending(tmp_path, capsys):
    def fail_on_a_full_disk():
        (tmp_path / f".exit.json.0.{os.getpid()}").symlink_to("/dev/full")
        raise RunFailed("of the run")

    with pytest.raises(RunFailed, match="of the run"), recorded_exit(tmp_path):
        fail_on_a_full_disk()
    assert f"{tmp_path / 'exit.json'} cannot be written: no space left" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("rank", "code"), [("1", 2), (None, None)])
def test_a_refused_config_is_recorded_where_torchrun_hides_it(tmp_path, monkeypatch, rank, code):
    config, run = tmp_path / "fit.yaml", tmp_path / "run"
    config.write_text(f"run: {run}\nstpes: 3\n")
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    with pytest.raises(RequestError, match="stpes"), recorded_refusal(config, []):
        load_config(config, FitConfig)
    assert run.exists() == (code is not None)
    if code is not None:
        assert record(run)["code"] == code
        assert "stpes: unknown key" in record(run)["message"]


def test_a_refused_config_without_a_run_folder_of_its_own_leaves_nothing(tmp_path, monkeypatch, small_store):
    monkeypatch.setenv("RANK", "0")
    store = small_store(tmp_path / "store")
    config = tmp_path / "fit.yaml"
    for text in ("run: 3\n", "{}\n", "a: [\n", f"run: {store}/run\n"):
        config.write_text(text)
        with pytest.raises(RequestError), recorded_refusal(config, []):
            load_config(config, FitConfig)
    assert not list(tmp_path.rglob("exit.json"))


def test_a_run_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="cannot be made"), recorded_exit(tmp_path / "file" / "run"):
        pass


def test_signals_are_remembered_and_handlers_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        assert not signals.agreed(ALONE)
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.agreed(ALONE)
        assert signals.received == "SIGUSR1"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    "error", [dist.DistNetworkError("x"), RuntimeError("[gloo/transport/tcp/pair.cc:545] Connection reset by peer")]
)
def test_a_lost_rank_is_a_failed_run(error):
    with pytest.raises(RunFailed, match="another rank is gone"), lost_rank_fails(7):
        raise error


def test_a_rank_that_did_not_come_is_told_with_the_time():
    with pytest.raises(RunFailed, match=r"gone, or did not come within timeout_s=7: .gloo"), lost_rank_fails(7):
        raise RuntimeError("[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 7000ms for recv operation")


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="shapes"), lost_rank_fails(7):
        raise RuntimeError("shapes do not fit")
