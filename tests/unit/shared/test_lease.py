"""One writer at a time, also across processes that die."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from shared import lease
from shared.errors import StoreError
from shared.lease import lease_holder, writer_lease

HOLD = """
import sys
from pathlib import Path
from shared.lease import writer_lease
with writer_lease(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A real process that holds the lease of tmp_path."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_second_holder_is_refused_with_the_first_named(tmp_path, holder):
    expected = rf"is being written by process {holder.pid} on .+ \(.*{tmp_path}\).*wait for it"
    with pytest.raises(StoreError, match=expected), writer_lease(tmp_path):
        pytest.fail("two writers")


def test_the_second_holder_in_one_process_is_refused(tmp_path):
    with writer_lease(tmp_path), pytest.raises(StoreError, match=f"process {os.getpid()} "), writer_lease(tmp_path):
        pytest.fail("two writers")


def test_a_killed_holders_lease_is_taken_over(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / ".lease").exists()
    with writer_lease(tmp_path):
        assert f'"pid": {os.getpid()}' in (tmp_path / ".lease").read_text()


def test_a_stopped_process_still_holds_it(tmp_path, holder):
    holder.send_signal(signal.SIGSTOP)
    with pytest.raises(StoreError, match=f"process {holder.pid} "), writer_lease(tmp_path):
        pytest.fail("two writers")
    holder.send_signal(signal.SIGCONT)


def test_it_is_released_after_the_block_and_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), writer_lease(tmp_path):
        raise ZeroDivisionError
    with writer_lease(tmp_path):
        pass
    assert not (tmp_path / ".lease").exists()


def test_a_holder_that_has_not_written_its_name_yet(tmp_path):
    with writer_lease(tmp_path):
        (tmp_path / ".lease").write_text("")
        with pytest.raises(StoreError, match="another process"), writer_lease(tmp_path):
            pytest.fail("two writers")


def test_a_lease_file_that_was_replaced_is_not_mistaken_for_ours(tmp_path, monkeypatch):
    """Between our open and our lock the old holder removes the file and a third process makes a new one."""
    path = tmp_path / ".lease"
    real_open, opened = os.open, []

    def open_and_lose_it(target, *rest):
        descriptor = real_open(target, *rest)
        if not opened:
            opened.append(descriptor)
            path.unlink()
        return descriptor

    monkeypatch.setattr(os, "open", open_and_lose_it)
    with writer_lease(tmp_path):
        assert path.exists(), "the lock must be on the file that others will find"


def test_a_look_says_who_writes_and_takes_nothing(tmp_path, holder):
    assert lease_holder(tmp_path).startswith(f"process {holder.pid} on ")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / ".lease").exists()
    assert lease_holder(tmp_path) is None
    (tmp_path / ".lease").unlink()
    assert lease_holder(tmp_path) is None


def test_a_look_at_the_same_moment_does_not_refuse_a_writer(tmp_path, monkeypatch):
    path = tmp_path / ".lease"
    path.touch()
    look = os.open(path, os.O_RDONLY)
    fcntl.flock(look, fcntl.LOCK_SH)
    monkeypatch.setattr(lease.time, "sleep", lambda _: os.close(look))
    with writer_lease(tmp_path):
        assert lease_holder(tmp_path).startswith(f"process {os.getpid()} ")
