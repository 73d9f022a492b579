"""What pydantic found wrong, in words of ours: its own message has many lines and an address on the internet."""

from __future__ import annotations

from pydantic import ValidationError


def first_fault(error: ValidationError) -> str:
    """One line: where the first fault is, what it is, and how many more there are."""
    faults = error.errors(include_url=False, include_input=False)
    place = ".".join(str(part) for part in faults[0]["loc"])
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{place + ': ' if place else ''}{' '.join(faults[0]['msg'].split())}{more}"
