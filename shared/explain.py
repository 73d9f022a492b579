"""Errors of libraries and of the system in words of ours.

pydantic's own message has many lines and an address on the internet, the system's begins with `[Errno 21]`.
"""

from __future__ import annotations

from pydantic import ValidationError


def first_fault(error: ValidationError) -> str:
    """One line: where the first fault is, what it is, and how many more there are."""
    faults = error.errors(include_url=False, include_input=False)
    # A validator of several keys may know the one that is wrong (`config_schema.Misfit`).
    within = getattr(faults[0].get("ctx", {}).get("error"), "key", None)
    place = ".".join([*(str(part) for part in faults[0]["loc"]), *([] if within is None else [within])])
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{place + ': ' if place else ''}{' '.join(faults[0]['msg'].split())}{more}"


def why_unreadable(error: OSError | ValueError) -> str:
    """Why a file cannot be read as what it should be, to stand after a colon."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text, {error.reason} at byte {error.start}"
    if isinstance(error, IsADirectoryError):
        return "it is a folder, not a file"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "it does not exist"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)
