from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import importlib.util
from pathlib import Path
before = importlib.util.find_spec("nvidia")
import preprocess.decode
after = importlib.util.find_spec("nvidia")
assert (before is None) == (after is None), "the nvidia packages must stay importable"
loaded = Path("/proc/self/maps").read_text()
assert "libdecord" in loaded
print([name for name in ("libnvblas", "libcublas", "libcudart") if name in loaded])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_decoding_loads_no_cuda_library():
    run = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
