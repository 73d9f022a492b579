"""One JSON file of gigabytes with the captions of all videos, `{video_id: entry, ...}`, cut into entries as found.

Streamed with the standard library's scanner, one entry at a time: a parser of events (ijson) gives values and not the
text they were written as, and refuses the NaN that such files hold.
"""

from __future__ import annotations

import codecs
import errno
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from shared.errors import InputFileError

_CHUNK = 2**20
_SPACE = re.compile(r"[ \t\n\r]*")


def json_entries(path: Path, most_bytes: int) -> Iterator[tuple[str, bytes | None]]:
    """Every key with the bytes that its value is written in; None for a value of more than `most_bytes`.

    Raises InputFileError naming the file and the place where it stops being such an object.
    """
    try:
        if not path.is_file() and path.exists():
            raise OSError(errno.EINVAL, "not a regular file")  # opening a pipe would wait for ever
        with path.open("rb") as file:
            yield from _Scanner(path, _decoded(iter(lambda: file.read(_CHUNK), b"")), most_bytes).entries()
    except OSError as error:
        raise InputFileError(f"captions.json_file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputFileError(f"captions.json_file {path} is not UTF-8: {error.reason}") from None


def _decoded(chunks: Iterator[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    for chunk in chunks:
        yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)


class _Scanner:
    """`text[at:]` was read and not used yet; `passed` counts the characters before the text."""

    def __init__(self, path: Path, chunks: Iterator[str], most_bytes: int) -> None:
        self._path, self._chunks, self._most = path, chunks, most_bytes
        self._text, self._at, self._passed = "", 0, 0
        self._decoder = json.JSONDecoder()

    def entries(self) -> Iterator[tuple[str, bytes | None]]:
        self._take("{")
        if self._next() == "}":
            self._take("}")
        else:
            while True:
                key, _ = self._value()
                if not isinstance(key, str):
                    self._refuse("a video id in quotes")
                self._take(":")
                _, written = self._value()
                data = written.encode()
                yield key, data if len(data) <= self._most else None
                if self._take(",}") == "}":
                    break
        if self._next():
            self._refuse("the end of the file")

    def _value(self) -> tuple[object, str]:
        """The next value and its text: of a value that does not end in what was read, more is read."""
        self._next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError):
                waiting = len(self._text) - self._at
                # Twice as much each time, so that a long entry is looked at a few times only.
                if waiting > 4 * self._most or not self._read_more(waiting):
                    self._refuse(f"a JSON value of at most {self._most} bytes")
                continue
            written = self._text[self._at : end]
            # A number that ends with the text may go on.
            if end < len(self._text) or not self._read_more():
                self._at += len(written)
                return value, written

    def _take(self, wanted: str) -> str:
        found = self._next()
        if not found or found not in wanted:
            self._refuse(" or ".join(map(repr, wanted)))
        self._at += 1
        return found

    def _next(self) -> str:
        """The next character that is no white space, now at `at`; empty at the end of the file."""
        while True:
            space = _SPACE.match(self._text, self._at)
            assert space is not None, "it matches nothing, too"
            self._at = space.end()
            if self._at < len(self._text) or not self._read_more():
                return self._text[self._at : self._at + 1]

    def _read_more(self, least: int = 0) -> bool:
        """Read a chunk, or chunks of `least` characters; False at the end of the file. Moves the text, `at` with it."""
        parts = [self._text[self._at :]]
        self._passed += self._at
        got, more = 0, False
        for chunk in self._chunks:
            parts.append(chunk)
            got, more = got + len(chunk), True
            if got >= least:
                break
        self._text, self._at = "".join(parts), 0
        return more

    def _refuse(self, expected: str) -> NoReturn:
        raise InputFileError(
            f"captions.json_file {self._path}: expected {expected} after {self._passed + self._at} characters, found "
            f"{self._text[self._at : self._at + 40]!r}; it should be one whole object, "
            "{video_id: {start, end, text}, ...}"
        )
