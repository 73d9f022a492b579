"""Index files as published: CSV and TSV with a header, lines of text, JSON of any size. Rows carry their place.

A row that is not as the others costs that row; a file that is not of the data set is refused.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ijson

from preprocess.adapters.items import Fault, Row, encodable
from shared.errors import InputFileError
from shared.explain import why_unreadable

# A quote that is never closed would swallow the rest of the file; no field of these data sets has this many lines.
_MOST_LINES = 64

SPLITS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validate": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}
_SPLIT_WORD = re.compile(r"(?<![a-z])(" + "|".join(sorted(SPLITS, key=len, reverse=True)) + r")(?![a-z])")


def split_name_of(word: object) -> str:
    """`train`, `val` or `test` for the words that data sets use for them, another word as it is, empty for none."""
    text = word.strip() if isinstance(word, str) else ""
    return SPLITS.get(text.lower(), text)


def split_from_name(path: Path) -> str:
    """The split that a file's name tells (`captions_val2017.json`, `results_2M_train.csv`), empty if it tells none."""
    found = _SPLIT_WORD.search(path.stem.lower())
    return SPLITS[found.group(1)] if found else ""


@contextmanager
def _readable(path: Path, form: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputFileError(f"index {path} cannot be read: {why_unreadable(error)}; expected {form}") from None


def lines(path: Path, form: str) -> Iterator[tuple[int, str]]:
    """Lines of a text file with their numbers from 1, without line ends, blank ones left out.

    Bytes that are not UTF-8 come as lone surrogates (see `items.encodable`). form: what was expected, for the message.
    """
    with _readable(path, form), path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file:
        for number, line in enumerate(file, 1):
            text = line.rstrip("\r\n")
            if text.strip():
                yield number, text


def header(path: Path, delimiter: str = ",") -> list[str]:
    """The first row of a table; empty for an empty file. Raises InputFileError."""
    first = next(lines(path, "a table with a header line"), None)
    if first is None:
        return []
    fields = _split(first[1], delimiter)
    return [name.strip() for name in fields] if isinstance(fields, list) else []


def table(path: Path, needed: Sequence[str], form: str) -> Iterator[tuple[Row, dict[str, str]] | Fault]:
    """Rows of a CSV file with a header that names the columns `needed`, in any order and among others.

    form: what the file should be, for the message. Raises InputFileError where a column is missing.
    """
    columns = header(path)
    missing = [name for name in needed if name not in columns]
    if missing or len(set(columns)) != len(columns):
        found = ", ".join(columns)[:300] or "none"
        raise InputFileError(
            f"index {path} has the columns {found}; expected {', '.join(needed)}, as in {form}. "
            "Is it an index of another data set?"
        )
    records = _records(lines(path, form))
    next(records, None)
    for number, fields in records:
        row = Row(path.name, f"line {number}")
        if isinstance(fields, str):
            yield Fault(row, "", "malformed", fields)
        elif len(fields) != len(columns):
            yield Fault(row, "", "malformed", f"{len(fields)} fields, expected {len(columns)}: {','.join(columns)}")
        elif not all(field.isascii() or encodable(field) for field in fields):
            yield Fault(row, "", "malformed", "not UTF-8")
        else:
            yield row, dict(zip(columns, fields, strict=True))


def _records(numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, list[str] | str]]:
    """CSV records by RFC 4180 with the line on which they start; of a line that is none: why.

    Quotes stand in pairs, so a record is whole as soon as their number is even.
    """
    source = iter(numbered)
    returned: deque[tuple[int, str]] = deque()
    while (first := returned.popleft() if returned else next(source, None)) is not None:
        number, text = first
        taken: list[tuple[int, str]] = []
        while text.count('"') % 2 and len(taken) < _MOST_LINES:
            following = returned.popleft() if returned else next(source, None)
            if following is None:
                break
            taken.append(following)
            text += "\n" + following[1]
        if text.count('"') % 2:
            returned.extendleft(reversed(taken))
            yield number, "a quote is opened and not closed"
        else:
            yield number, _split(text, ",")


def _split(text: str, delimiter: str) -> list[str] | str:
    if '"' not in text:
        return text.split(delimiter)
    try:
        return next(csv.reader([line + "\n" for line in text.split("\n")], delimiter=delimiter, strict=True))
    except csv.Error as error:
        return f"not a CSV row: {error}"


def json_items(path: Path, prefix: str, form: str) -> Iterator[tuple[Row, Any]]:
    """Entries of the list at `prefix` (`videos`; empty for the whole file), one after another, in bounded memory.

    Numbers are int and float. Raises InputFileError where there is no such list, or the file is no JSON.
    """
    found = False
    with _json(path, form) as file:
        where = f"{prefix}.item" if prefix else "item"
        for number, value in enumerate(ijson.items(file, where, use_float=True)):
            found = True
            yield Row(path.name, f"{prefix}[{number}]"), value
    if not found:
        _refuse(path, f"a list {prefix!r} with entries" if prefix else "a list with entries", form)


def json_pairs(path: Path, prefix: str, form: str) -> Iterator[tuple[Row, str, Any]]:
    """Keys and values of the object at `prefix` (empty for the whole file); otherwise as `json_items`."""
    found = False
    with _json(path, form) as file:
        for key, value in ijson.kvitems(file, prefix, use_float=True):
            found = True
            yield Row(path.name, ".".join(filter(None, (prefix, key)))), key, value
    if not found:
        _refuse(path, f"an object {prefix!r} with entries" if prefix else "an object with entries", form)


@contextmanager
def _json(path: Path, form: str) -> Iterator[Any]:
    try:
        with _readable(path, form), path.open("rb") as file:
            yield file
    except (ijson.JSONError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputFileError(f"index {path} is not whole JSON: {reason}; expected {form}. Get it again") from None


def _refuse(path: Path, expected: str, form: str) -> None:
    """Nothing was found: say what the file holds instead."""
    keys: dict[str, None] = {}
    kind, events = "a single value", 0
    with _json(path, form) as file:
        for place, event, value in ijson.parse(file):
            events += 1
            if events == 1:
                kind = {"start_array": "a list", "start_map": "an object"}.get(event, kind)
            if not place and event == "map_key" and len(keys) < 20:
                keys[value] = None
    held = (
        f"an object with the keys {', '.join(keys)[:300]}" if keys else f"an empty {kind[2:]}" if events == 2 else kind
    )
    raise InputFileError(
        f"index {path} holds {held}; expected {expected}, as in {form}. Is it an index of another data set?"
    )
