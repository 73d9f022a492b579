"""The rows of one video in a set's tables, found without reading the tables from their beginning in Python."""

from __future__ import annotations

import csv
import io
import mmap
from collections.abc import Iterator
from pathlib import Path

from shared.manifest_set import ManifestSet


def rows_of_video(
    manifest: ManifestSet, table: str, columns: tuple[str, ...], video_id: str, count: int
) -> list[dict[str, str]]:
    """The `count` rows that a table has of a video, in order.

    A table holds a video's rows together, so the first is looked for as text. Where that meets the same text inside a
    caption, all rows are read instead. Raises DamageFound.
    """
    rows: list[dict[str, str]] = []
    for file in manifest.info.part_files(table):
        if len(rows) < count:
            found = _from_first(manifest.checked(file), columns, video_id, count - len(rows))
            rows += found
    if len(rows) == count:
        return rows
    return [row for row in manifest.rows(table, columns) if row["video_id"] == video_id]


def _from_first(path: Path, columns: tuple[str, ...], video_id: str, count: int) -> list[dict[str, str]]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        place = data.find(b"\n" + _field(video_id).encode() + b",")
        if place < 0:
            return []
        file.seek(place + 1)
        lines = io.TextIOWrapper(file, encoding="utf-8", newline="")
        found = list(_while_of(csv.reader(lines), len(columns), video_id, count))
        lines.detach()
    return [dict(zip(columns, row, strict=True)) for row in found]


def _while_of(reader: Iterator[list[str]], fields: int, video_id: str, count: int) -> Iterator[list[str]]:
    for row in reader:
        if count == 0 or len(row) != fields or row[0] != video_id:
            return
        count -= 1
        yield row


def _field(text: str) -> str:
    """A text as the CSVs have it, quoted where it must be."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([text, ""])
    return line.getvalue().removesuffix(",")
