"""A command that is stopped before it has begun ends like one that is stopped later."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    # Checked, and found to be right, before torch is imported.
    "command",
    [["preprocess", "run", f"{CONFIGS}/preprocess/own.yaml"], ["train", "fit", f"{CONFIGS}/train/own.yaml"]],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("place", ["shared.errors", "pydantic", "torch"])
def test_a_signal_while_modules_are_imported(place, command, number, tmp_path):
    code = f"""
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # what starts the tests may have left it ignored
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == {place!r}:
            signal.raise_signal(signal.Signals({int(number)}))
sys.meta_path.insert(0, Stop())
sys.argv = {command!r}
runpy.run_module({command[0]!r}, run_name="__main__", alter_sys=True)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 4, ended.stderr
    assert ended.stderr.strip() == "error: interrupted; run the same command again to go on"
