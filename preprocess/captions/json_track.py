"""Captions of one video as JSON: `{"start": [s, ...], "end": [s, ...], "text": [text, ...]}`.

The form of one entry of HowTo100M's `caption.json` and `raw_caption.json` (Miech et al. 2019), and the one in which
subtitle streams of media files are kept. NaN, which Python writes and JSON does not know, is read.
"""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import Any

from preprocess.captions.types import Cue

KEYS = ("start", "end", "text")


def has_lists(text: str) -> bool:
    """Whether it is an object with the three lists."""
    return text.lstrip()[:1] == "{" and _lists(text) is not None


def parse_json(text: str) -> tuple[list[Cue], list[tuple[int, str]]]:
    """Cues in order, and what was skipped as (number of the cue from 1, why)."""
    lists = _lists(text)
    assert lists is not None, "parse_json is for texts that has_lists accepts"
    cues: list[Cue] = []
    skipped: list[tuple[int, str]] = []
    for number, (start, end, said) in enumerate(zip_longest(*lists, fillvalue=_ABSENT), 1):
        why = _fault(start, end, said)
        if why:
            skipped.append((number, why))
        else:
            cues.append(Cue(float(start), float(end), said))
    return cues, skipped


class _Absent:
    """Stands where one list is shorter than another."""


_ABSENT = _Absent()


def _fault(start: Any, end: Any, said: Any) -> str:
    absent = [key for key, value in zip(KEYS, (start, end, said), strict=True) if value is _ABSENT]
    if absent:
        return f"has no {' and no '.join(absent)}"
    for key, value in (("start", start), ("end", end)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"{key} is no number: {str(value)[:40]!r}"
        if not abs(value) < 1e9:  # NaN, infinity, or an integer that no float holds
            return f"{key} is no time: {str(value)[:40]}"
        if value < 0:
            return f"{key} is negative: {value}"
    if not isinstance(said, str):
        return f"text is no string: {str(said)[:40]!r}"
    return ""


def _lists(text: str) -> list[list[Any]] | None:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # ValueError: no JSON, or an integer of thousands of digits
        return None
    if not isinstance(content, dict):
        return None
    lists = [content.get(key) for key in KEYS]
    return [one for one in lists if isinstance(one, list)] if all(isinstance(one, list) for one in lists) else None
