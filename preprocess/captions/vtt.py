"""WebVTT by the W3C specification's own algorithm ("WebVTT parser", "collect a WebVTT block").

webvtt-py is not used here: it rejects whole files for one bad cue and accepts times such as `.-004`; it serves as a
cross-check in the tests. What the specification drops silently is counted here with its line.
"""

from __future__ import annotations

import re

from preprocess.captions.timestamps import WEBVTT_TIMINGS, webvtt_seconds
from preprocess.captions.types import Cue

_SIGNATURE = re.compile(r"WEBVTT(?:[ \t]|\n|\Z)")
_NO_CUE = re.compile(r"(?:STYLE|REGION)[ \t\f]*(?:\n|\Z)|NOTE(?:[ \t\n]|\Z)")


def has_signature(text: str) -> bool:
    """`text` has its line breaks normalised and no byte order mark."""
    return _SIGNATURE.match(text) is not None


def parse_webvtt(text: str) -> tuple[list[Cue], list[tuple[int, str]]]:
    """Cues in order, and what was skipped as (line number from 1, why)."""
    lines = text.split("\n")
    # A header that is not closed by a blank line ends at the first line with an arrow, which starts a cue.
    at = 1
    while at < len(lines) and lines[at] and "-->" not in lines[at]:
        at += 1
    cues: list[Cue] = []
    skipped: list[tuple[int, str]] = []
    while at < len(lines):
        if not lines[at]:
            at += 1
            continue
        at = _collect_block(lines, at, cues, skipped)
    return cues, skipped


def _collect_block(lines: list[str], first: int, cues: list[Cue], skipped: list[tuple[int, str]]) -> int:
    """Read the block that starts at line `first`; returns the line to go on with."""
    arrow_at = _arrow(lines, first)
    body = first if arrow_at is None else arrow_at + 1
    end = body
    while end < len(lines) and lines[end] and "-->" not in lines[end]:
        end += 1
    text = "\n".join(lines[body:end])
    if arrow_at is None:
        if not _NO_CUE.match(text):
            skipped.append((first + 1, "a block without a timing line"))
        return end
    timings = parse_timings(lines[arrow_at])
    if timings is None:
        skipped.append((arrow_at + 1, f"not a timing line: {lines[arrow_at][:80]!r}"))
    else:
        cues.append(Cue(*timings, text))
    return end


def _arrow(lines: list[str], first: int) -> int | None:
    if "-->" in lines[first]:
        return first
    return first + 1 if first + 1 < len(lines) and "-->" in lines[first + 1] else None


def parse_timings(line: str) -> tuple[float, float] | None:
    """start and end in seconds; whatever follows them is settings, and ignored."""
    match = WEBVTT_TIMINGS.match(line)
    if match is None:
        return None
    start, end = webvtt_seconds(match.groups()[:6]), webvtt_seconds(match.groups()[6:])
    return None if start is None or end is None else (start, end)
