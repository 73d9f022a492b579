"""Files that a command is asked to write: refused before the work where they cannot be, and never with a traceback."""

from __future__ import annotations

from pathlib import Path

from shared.atomic import replace_file
from shared.errors import RequestError
from shared.store import refuse_inside_store


def check_output(path: Path) -> None:
    """Raise RequestError unless `path` can be a file: not a folder, in a folder that exists, outside of any store, and
    no checkpoint."""
    refuse_inside_store(path, "what is written (--out PATH)")
    if path.is_dir():
        raise RequestError(f"{path} is a folder, expected the name of a file to write; give --out {path / 'NAME'}")
    if path.suffix == ".pt" and path.exists():
        raise RequestError(
            f"{path} is there, and its name is that of a checkpoint; give --out a name like metrics.json"
        )
    if not path.parent.is_dir():
        raise RequestError(f"folder {path.parent} does not exist; make it, or give another --out PATH")


def write_output(path: Path, data: bytes) -> None:
    """Write the file whole or not at all. Raises RequestError where the system refuses, StoppedEarly on a full disk."""
    try:
        replace_file(path, data)
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}; give another --out PATH") from None
