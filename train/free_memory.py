"""How much memory a host has left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

# What a control group says of itself, below /sys/fs/cgroup: limit, use, and of the use what the system drops when it
# has to, for version 2 and version 1 (Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst).
_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes(root: Path = Path("/")) -> int:
    """Of this machine, and of every control group that this process is in: a container has less than its host.

    root: where proc and sys are.
    """
    of_host: int = psutil.virtual_memory().available
    return max(0, min([of_host, *_rooms(root)]))


def _rooms(root: Path) -> Iterator[int]:
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            yield from _rooms_above(root / "sys/fs/cgroup", path, _V2)
        elif "memory" in controllers.split(","):
            yield from _rooms_above(root / "sys/fs/cgroup/memory", path, _V1)


def _rooms_above(mount: Path, path: str, names: tuple[str, str, str]) -> Iterator[int]:
    """Of the group and those it is in, as far as they are seen from here."""
    limit_name, use_name, spare_name = names
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for length in range(len(parts), -1, -1):
        folder = mount.joinpath(*parts[:length])
        limit, use = _text(folder / limit_name).strip(), _text(folder / use_name).strip()
        # `max`, and no file in the outermost group: no limit.
        if limit.isdecimal() and use.isdecimal():
            yield int(limit) - int(use) + _spare(_text(folder / "memory.stat"), spare_name)


def _spare(stat: str, name: str) -> int:
    found = (line.split() for line in stat.splitlines())
    return next((int(words[1]) for words in found if len(words) == 2 and words[0] == name and words[1].isdecimal()), 0)


def _text(path: Path) -> str:
    """Empty for what is not there or not to be read, as where there are no control groups."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
