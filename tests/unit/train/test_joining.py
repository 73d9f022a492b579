"""A rank that calls a program which is no rank 0, in a process of its own, since it ends that process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import train
from train.joining import joined_within

JOIN = """
import train.joining
from train.distributed import init_distributed
train.joining._GRACE_S = 0.5
init_distributed("cpu", timeout_s=0.5)
"""


def test_a_program_that_takes_the_call_and_never_answers_is_not_waited_for():
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        port = foreign.getsockname()[1]
        rank = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        root = Path(train.__file__).parents[1]
        done = subprocess.run(
            [sys.executable, "-c", JOIN], env=os.environ | rank, cwd=root, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 3, done.stderr
    assert f"no answer from rank 0 at MASTER_ADDR=127.0.0.1, MASTER_PORT={port} within timeout_s=0.5" in done.stderr


def test_nothing_is_left_running_once_joined():
    before = threading.active_count()
    with joined_within(100):
        timer = next(one for one in threading.enumerate() if isinstance(one, threading.Timer))
    timer.join(timeout=10)
    assert not timer.is_alive()
    assert threading.active_count() == before
