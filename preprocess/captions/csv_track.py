"""Per-video CSV with a header that names `start`, `end` (seconds) and `text`, in any order and among others."""

from __future__ import annotations

import csv
import io
import math

from preprocess.captions.types import Cue

COLUMNS = ("start", "end", "text")


def has_header(text: str) -> bool:
    return _columns(_first_row(text)) is not None


def parse_csv(text: str) -> tuple[list[Cue], list[tuple[int, str]]]:
    """Cues in order, and what was skipped as (line number from 1, why)."""
    # NUL ends a row for the csv module of some versions, and is no text in any of them.
    reader = csv.reader(io.StringIO(text.replace("\0", "�"), newline=""), strict=False)
    columns = _columns(next(reader))
    assert columns is not None, "parse_csv is for texts that has_header accepts"
    cues: list[Cue] = []
    skipped: list[tuple[int, str]] = []
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return cues, skipped
        except csv.Error as error:
            skipped.append((line, f"not a CSV row: {error}"))
            continue
        if row:
            parsed = _parse_row(row, columns)
            if isinstance(parsed, Cue):
                cues.append(parsed)
            else:
                skipped.append((line, parsed))


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
