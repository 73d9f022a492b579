"""SRT, which no one specifies: a number, a timing line, text up to the next number and timing line.

Read leniently where the meaning is plain: the number may be missing, the decimal sign may be a full stop, the blank
line between two cues may be missing, and blank lines inside a cue belong to it.
"""

from __future__ import annotations

import re

from preprocess.captions.timestamps import SRT_TIMINGS, srt_seconds
from preprocess.captions.types import Cue

_NUMBER = re.compile(r"[ \t]*[0-9]{1,9}[ \t]*\Z")
_CERTAIN = re.compile(r"\s*[0-9]{1,9}[ \t]*\n[ \t]*[0-9]{1,9}:[0-9]{1,2}:[0-9]{1,2},[0-9]{1,9}[ \t]*-->")


def certainly_srt(text: str) -> bool:
    """A number, then a timing line with commas: no other format starts like that."""
    return _CERTAIN.match(text) is not None


def parse_srt(text: str) -> tuple[list[Cue], list[tuple[int, str]]]:
    """Cues in order, and what was skipped as (line number from 1, why)."""
    lines = text.split("\n")
    cues: list[Cue] = []
    skipped: list[tuple[int, str]] = []
    starts = _cue_starts(lines)
    bounds = [first for first, _ in starts] + [len(lines)]
    _note_stray(lines, bounds[0], skipped)
    for (_, arrow), following in zip(starts, bounds[1:], strict=True):
        end = _note_unfinished(lines, arrow + 1, following, skipped)
        timings = parse_timings(lines[arrow])
        if timings is None:
            skipped.append((arrow + 1, f"not a timing line: {lines[arrow][:80]!r}"))
        else:
            cues.append(Cue(*timings, "\n".join(lines[arrow + 1 : end]).rstrip("\n")))
    return cues, sorted(skipped)


def parse_timings(line: str) -> tuple[float, float] | None:
    """start and end in seconds; coordinates after them are ignored."""
    match = SRT_TIMINGS.match(line)
    if match is None:
        return None
    start, end = srt_seconds(match.groups()[:4]), srt_seconds(match.groups()[4:])
    return None if start is None or end is None else (start, end)


def _cue_starts(lines: list[str]) -> list[tuple[int, int]]:
    """(first line, timing line) of every cue, malformed timing lines included."""
    starts: list[tuple[int, int]] = []
    expected = ""
    for at, line in enumerate(lines):
        if "->" not in line:
            continue
        above = lines[at - 1].strip() if at else ""
        # Without a blank line before it, a lone number is the last cue's text unless it counts on from that cue.
        numbered = _NUMBER.match(above) is not None and (at == 1 or not lines[at - 2].strip() or above == expected)
        # An arrow in spoken text is no timing line; a malformed timing line shows itself by the number above it.
        if SRT_TIMINGS.match(line) or (numbered and "-->" in line):
            starts.append((at - 1 if numbered else at, at))
            expected = str(int(above) + 1) if numbered else ""
    return starts


def _note_unfinished(lines: list[str], body: int, end: int, skipped: list[tuple[int, str]]) -> int:
    """The line to cut a cue's text at: a number after a blank line is a cue whose timing line is missing."""
    for at in range(body + 1, end):
        following = lines[at + 1].strip() if at + 1 < end else ""
        if _NUMBER.match(lines[at]) and not lines[at - 1].strip() and (following or at + 1 >= len(lines)):
            skipped.append((at + 1, "a numbered cue without a timing line"))
            return at
    return end


def _note_stray(lines: list[str], end: int, skipped: list[tuple[int, str]]) -> None:
    stray = next((at for at in range(end) if lines[at].strip()), None)
    if stray is not None:
        skipped.append((stray + 1, "text before the first timing line"))
