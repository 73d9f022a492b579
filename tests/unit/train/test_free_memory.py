"""What is free, within the limits of control groups as Linux shows them in files."""

from __future__ import annotations

import psutil
import pytest

from train.free_memory import available_bytes


@pytest.fixture(autouse=True)
def host(monkeypatch):
    """One that has a million bytes to give."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 1_000_000}))


def write(root, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def group(folder: str, limit: str, use: int, spare: int = 0) -> dict[str, str]:
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{use}\n",
        f"{folder}/memory.stat": f"anon 5\ninactive_file {spare}\nactive_file 7\n",
    }


def test_without_groups_it_is_the_host(tmp_path):
    assert available_bytes(tmp_path) == 1_000_000
    write(tmp_path, {"proc/self/cgroup": "0::/a\n"} | group("sys/fs/cgroup/a", "max", 9))
    assert available_bytes(tmp_path) == 1_000_000


def test_the_tightest_group_above_counts_and_dropped_pages_are_room(tmp_path):
    write(
        tmp_path,
        {"proc/self/cgroup": "0::/slice/job\n"}
        | group("sys/fs/cgroup/slice", "9000", 4000, 1500)
        | group("sys/fs/cgroup/slice/job", "8000", 1000),
    )
    assert available_bytes(tmp_path) == 9000 - 4000 + 1500


def test_version_1_and_a_path_that_is_not_seen_from_inside(tmp_path):
    folder = "sys/fs/cgroup/memory"
    write(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n0::/../x\n",
            f"{folder}/memory.limit_in_bytes": "7000\n",
            f"{folder}/memory.usage_in_bytes": "2500\n",
            f"{folder}/memory.stat": "cache 1\ntotal_inactive_file 100\nodd\n",
        },
    )
    assert available_bytes(tmp_path) == 4600


@pytest.mark.parametrize("text", ["", "\n\n", "0", "0::", "::::", "x:memory:"])
def test_files_that_say_something_else_change_nothing(tmp_path, text):
    write(tmp_path, {"proc/self/cgroup": text} | group("sys/fs/cgroup", "many", 9))
    assert available_bytes(tmp_path) == 1_000_000


def test_more_in_use_than_allowed_leaves_nothing(tmp_path):
    write(tmp_path, {"proc/self/cgroup": "0::/\n"} | group("sys/fs/cgroup", "100", 900))
    assert available_bytes(tmp_path) == 0
