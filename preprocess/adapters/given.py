"""The paths that people give to `adapt`: each must be there, and what it should be, before anything is read."""

from __future__ import annotations

import stat
from pathlib import Path

from shared.errors import InputFileError


def check_index(path: Path, about: str, takes: frozenset[str]) -> None:
    """about: what was expected, for the message; takes: of `file` and `folder`, what it may be. InputFileError."""
    _check(path, "index" if "file" in takes else "folder", about, takes)


def check_media(path: Path) -> None:
    """Raises InputFileError unless it is a folder."""
    _check(path, "folder of media", "the folder below which the media lie", frozenset({"folder"}))


def check_captions(path: Path) -> None:
    """Raises InputFileError unless it is a file or a folder."""
    _check(path, "captions", "a file or a folder for --captions", frozenset({"file", "folder"}))


def _check(path: Path, what: str, expected: str, takes: frozenset[str]) -> None:
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise InputFileError(f"{what} {path} does not exist; expected {expected}") from None
    except OSError as error:
        raise InputFileError(f"{what} {path} cannot be read: {error.strerror}; expected {expected}") from None
    if is_folder and "folder" not in takes:
        raise InputFileError(f"{what} {path} is a folder, not a file; expected {expected}")
    if not is_folder and "file" not in takes:
        raise InputFileError(f"{what} {path} is a file, not a folder; expected {expected}")
