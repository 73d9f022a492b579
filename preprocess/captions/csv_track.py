"""Per-video CSV with a header that names `start`, `end` (seconds) and `text`, in any order and among others."""

from __future__ import annotations

import csv
import math

from preprocess.captions.types import Cue

COLUMNS = ("start", "end", "text")

# A quote that is never closed would swallow the rest of the file; no caption has this many lines.
_MOST_LINES = 64


def has_header(text: str) -> bool:
    return _columns(_first_row(text)) is not None


def parse_csv(text: str) -> tuple[list[Cue], list[tuple[int, str]]]:
    """Cues in order, and what was skipped as (line number from 1, why)."""
    # NUL ends a row for the csv module of some versions, and is no text in any of them.
    lines = [line + "\n" for line in text.replace("\0", "\ufffd").split("\n")]
    columns = _columns(_first_row(text))
    assert columns is not None, "parse_csv is for texts that has_header accepts"
    cues: list[Cue] = []
    skipped: list[tuple[int, str]] = []
    at = 1
    while at < len(lines):
        row, used = _record(lines, at)
        parsed = _parse_row(row, columns) if isinstance(row, list) else row
        if isinstance(parsed, Cue):
            cues.append(parsed)
        elif row != []:
            skipped.append((at + 1, parsed))
        at += used
    return cues, skipped


def _record(lines: list[str], at: int) -> tuple[list[str] | str, int]:
    """The record that starts at line `at` and how many lines it takes; of one that never ends: why, and one line."""
    if '"' not in lines[at] and len(lines[at]) <= csv.field_size_limit():
        line = lines[at].removesuffix("\n")
        return (line.split(",") if line else []), 1
    most = min(_MOST_LINES, len(lines) - at)
    reader = csv.reader(lines[number] for number in range(at, at + most))
    try:
        row = next(reader, [])
        if reader.line_num == most:
            # At the end of what it may read, the reader takes an open quote for closed; strictly, it is an error.
            next(csv.reader(lines[at : at + most], strict=True), [])
    except csv.Error as error:
        return f"not a CSV row: {error}", 1
    return row, max(1, reader.line_num)


def _first_row(text: str) -> list[str]:
    try:
        return next(csv.reader([text.partition("\n")[0]]), [])
    except csv.Error:
        return []


def _columns(header: list[str]) -> tuple[int, int, int] | None:
    names = [name.strip().lower() for name in header]
    if any(names.count(column) != 1 for column in COLUMNS):
        return None
    return names.index("start"), names.index("end"), names.index("text")


def _parse_row(row: list[str], columns: tuple[int, int, int]) -> Cue | str:
    if len(row) <= max(columns):
        return f"{len(row)} columns, expected at least {max(columns) + 1}"
    try:
        start, end = float(row[columns[0]]), float(row[columns[1]])
    except ValueError:
        return f"start or end is no number: {row[columns[0]][:40]!r}, {row[columns[1]][:40]!r}"
    if not (math.isfinite(start) and math.isfinite(end)):
        return f"start or end is not finite: {start}, {end}"
    return Cue(start, end, row[columns[2]])
