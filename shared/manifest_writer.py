"""Writing a manifest set: plain CSV for everyone, and a binary twin of the token ids for training.

Streams: memory does not grow with the number of captions.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from shared.atomic import disk_full_stops, fsync_file, write_new_file
from shared.containers import NpyRowFile
from shared.errors import RequestError
from shared.fingerprint import canonical_json, fingerprint, hash_file
from shared.schema import EMBEDDINGS, SPLIT_NAME, TWINS, EmbeddingInfo, FileEntry, ManifestInfo, Name
from shared.shard_writer import FinishedFile

PART_ROWS = 1_000_000
_ROWS_AT_ONCE = 64

VIDEO_COLUMNS = ("video_id", "split", "duration", "rows", "captions", "windows")
CAPTION_COLUMNS = ("video_id", "start", "end", "text", "token_ids")
WINDOW_COLUMNS = ("video_id", "start", "end", "first_row", "rows", "captions")
FAILURE_COLUMNS = ("video_id", "stage", "reason", "message")


class ManifestSetWriter:
    """Writes one set into `directory` (made if absent), video after video.

    For each: `add_captions`, `add_window`s, then `add_video`. Numbers of captions count through the whole set.
    """

    def __init__(self, directory: Path, embeddings: EmbeddingInfo | None = None) -> None:
        """embeddings: what `add_captions` gets of them; None for a set without any."""
        self._directory = directory
        self._tables: dict[str, CsvParts] = {}
        self._embedding_info = embeddings
        self._embeddings: NpyRowFile | None = None
        with disk_full_stops(directory):
            directory.mkdir(parents=True, exist_ok=True)
            self._tokens = NpyRowFile(directory / "tokens", (), np.dtype(np.int32))
            self._offsets = NpyRowFile(directory / "offsets", (), np.dtype(np.int64))
            self._offsets.append(np.zeros(1, np.int64))
            if embeddings is not None:
                self._embeddings = embedding_file(directory, embeddings)
        self._token_count = 0
        self._caption_count = 0
        self._pending_captions = 0
        self._pending_windows = 0
        self._splits: dict[str, int] = {}
        for name, columns in (
            ("videos", VIDEO_COLUMNS),
            ("captions", CAPTION_COLUMNS),
            ("failures", FAILURE_COLUMNS),
        ):
            self._table(name, columns)

    def add_captions(
        self,
        video_id: str,
        starts: Sequence[float],
        ends: Sequence[float],
        texts: Sequence[str],
        token_ids: Sequence[Sequence[int] | np.ndarray],
        embeddings: np.ndarray | None = None,
    ) -> int:
        """Add a video's captions (seconds; ids unpadded); returns the number of its first one in the set.

        embeddings: (captions, D) of the set's dtype, where it has them.
        """
        first = self._caption_count
        for start, end, text, ids in zip(starts, ends, texts, token_ids, strict=True):
            row = (video_id, seconds(start), seconds(end), text, " ".join(map(str, ids)))
            self._tables["captions"].write(row)
        lengths = np.array([len(ids) for ids in token_ids], np.int64)
        self._add_embeddings(embeddings, len(lengths))
        if len(lengths):
            flat = np.fromiter(chain.from_iterable(token_ids), np.int32, int(lengths.sum()))
            with disk_full_stops(self._directory):
                self._tokens.append(flat)
                self._offsets.append(self._token_count + np.cumsum(lengths))
        self._token_count += int(lengths.sum())
        self._caption_count += len(lengths)
        self._pending_captions += len(lengths)
        return first

    def _add_embeddings(self, embeddings: np.ndarray | None, captions: int) -> None:
        info = self._embedding_info
        expected = None if info is None else ((captions, info.dim), info.dtype)
        found = None if embeddings is None else (embeddings.shape, embeddings.dtype.name)
        if found != expected:
            raise ValueError(f"embeddings of {captions} captions are {found}, the set has {expected}")
        if self._embeddings is not None and embeddings is not None and captions:
            with disk_full_stops(self._directory):
                self._embeddings.append(embeddings)

    def add_window(
        self,
        split: str,
        video_id: str,
        start: float,
        end: float,
        first_row: int,
        rows: int,
        candidates: Sequence[int],
    ) -> None:
        """Add a window of the current video: seconds, rows relative to the video, set-wide caption numbers.

        Raises RequestError for a split whose name cannot be part of a file name.
        """
        if split not in self._splits and not re.fullmatch(SPLIT_NAME, split):
            raise RequestError(
                f"split {split!r} of video {video_id!r} cannot name a file; expected letters, digits, _ and -"
            )
        table = self._table(f"windows-{split}", WINDOW_COLUMNS)
        table.write((video_id, seconds(start), seconds(end), first_row, rows, " ".join(map(str, candidates))))
        self._splits[split] = self._splits.get(split, 0) + 1
        self._pending_windows += 1

    def add_video(self, video_id: str, split: str, duration: float, rows: int) -> None:
        """Close a video: its captions and windows are those added since the last one."""
        row = (video_id, split, seconds(duration), rows, self._pending_captions, self._pending_windows)
        self._tables["videos"].write(row)
        self._pending_captions = self._pending_windows = 0

    def add_failure(self, video_id: str, stage: str, reason: str, message: str) -> None:
        """Record a video (or its captions) that is not in the set, and why."""
        self._tables["failures"].write((video_id, stage, reason, message))

    def finish(
        self,
        *,
        name: Name,
        stream: Name,
        stream_fingerprint: str,
        config: dict[str, Any],
        tokenizer: dict[str, Any],
        report: dict[str, Any],
    ) -> tuple[ManifestInfo, tuple[FinishedFile, ...]]:
        """Close the files, write manifest.json and return what `store.StoreWriter.commit_set` needs."""
        parts = {path.name: rows for table in self._tables.values() for path, rows in table.finish()}
        with disk_full_stops(self._directory):
            twins = [self._tokens.finish(), self._offsets.finish()]
            if self._embeddings is not None:
                self._embeddings.finish()
        assert [twin.name for twin in twins] == list(TWINS)
        info = ManifestInfo(
            name=name,
            fingerprint="",
            stream=stream,
            stream_fingerprint=stream_fingerprint,
            config=config,
            tokenizer=tokenizer,
            captions=self._caption_count,
            tokens=self._token_count,
            splits=dict(sorted(self._splits.items())),
            parts=dict(sorted(parts.items())),
            report=report,
            embeddings=self._embedding_info,
        )
        return finish_set(self._directory, info)

    def _table(self, name: str, columns: Sequence[str]) -> CsvParts:
        if name not in self._tables:
            self._tables[name] = CsvParts(self._directory, name, columns)
        return self._tables[name]


def embedding_file(directory: Path, info: EmbeddingInfo) -> NpyRowFile:
    """`embeddings.npy` of a set, without rows yet."""
    return NpyRowFile(directory / EMBEDDINGS.removesuffix(".npy"), (info.dim,), np.dtype(info.dtype))


def finish_set(directory: Path, info: ManifestInfo) -> tuple[ManifestInfo, tuple[FinishedFile, ...]]:
    """Give a set, whose tables and twins are finished in `directory`, its fingerprint, and write its manifest.json."""
    hashes = {file: hash_file(directory / file) for file in info.data_files}
    # Of everything the set says: its folder is named by it, and a folder's files are never replaced by others.
    whole = fingerprint({"files": hashes, "manifest": info.model_dump(mode="json")})
    info = info.model_copy(update={"fingerprint": whole})
    write_new_file(directory / "manifest.json", canonical_json(info.model_dump(mode="json")))
    hashes["manifest.json"] = hash_file(directory / "manifest.json")
    files = []
    for file, digest in sorted(hashes.items()):
        entry = FileEntry(bytes=(directory / file).stat().st_size, xxh3=digest)
        files.append(FinishedFile(directory / file, f"{info.folder}/{file}", entry))
    return info, tuple(files)


class CsvParts:
    """A CSV table (RFC 4180 quoting, UTF-8) in parts of at most PART_ROWS rows: `name.csv`, `name.00001.csv`, ..."""

    def __init__(self, directory: Path, name: str, columns: Sequence[str]) -> None:
        self._directory, self._name, self._columns = directory, name, columns
        self._parts: list[tuple[Path, int]] = []
        self._file: TextIO | None = None
        self._rows = 0
        self._open_part()

    def write(self, row: Sequence[object]) -> None:
        if self._rows == PART_ROWS:
            self._close_part()
            self._open_part()
        self._waiting.append(row)
        self._rows += 1
        if len(self._waiting) >= _ROWS_AT_ONCE:
            self._write_waiting()

    def finish(self) -> list[tuple[Path, int]]:
        """Close and fsync; returns every part with its number of rows."""
        self._close_part()
        return self._parts

    def _open_part(self) -> None:
        number = len(self._parts)
        self._path = self._directory / (f"{self._name}.csv" if number == 0 else f"{self._name}.{number:05d}.csv")
        with disk_full_stops(self._directory):
            self._file = self._path.open("w", encoding="utf-8", newline="")
        self._waiting: list[Sequence[object]] = [self._columns]
        self._rows = 0

    def _write_waiting(self) -> None:
        assert self._file is not None
        rows, self._waiting = self._waiting, []  # a full disk ends the set: nothing is tried again
        with disk_full_stops(self._directory):
            self._file.write(_csv_text(rows))

    def _close_part(self) -> None:
        assert self._file is not None
        self._write_waiting()
        with disk_full_stops(self._directory):
            self._file.close()
            fsync_file(self._path)
        self._parts.append((self._path, self._rows))


def _csv_text(rows: Sequence[Sequence[object]]) -> str:
    """Rows that end with LF.

    The csv module is told CRLF, because only then it quotes fields with a lone CR in every version of Python.
    """
    text = _with_crlf(rows)
    if text.count("\n") == len(rows):  # every LF ends a row
        return text.replace("\r\n", "\n")
    return "".join(_with_crlf([row]).removesuffix("\r\n") + "\n" for row in rows)


def _with_crlf(rows: Sequence[Sequence[object]]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def seconds(value: float) -> str:
    """A time as the CSVs write it: seconds to the microsecond, without trailing zeros."""
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
