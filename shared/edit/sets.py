"""Manifest sets without some videos, or put together from several stores. Captions are numbered again.

Works on pieces of the tables as bytes: Python sees every video, and no caption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shared.atomic import disk_full_stops
from shared.containers import NpyRowFile
from shared.edit.raw_table import RawParts, RawTable, csv_field, renumbered
from shared.edit.take import Keep
from shared.errors import DamageFound
from shared.manifest_set import ManifestSet
from shared.manifest_writer import (
    CAPTION_COLUMNS,
    FAILURE_COLUMNS,
    VIDEO_COLUMNS,
    WINDOW_COLUMNS,
    CsvParts,
    embedding_file,
    finish_set,
)
from shared.schema import EmbeddingInfo, ManifestInfo
from shared.shard_writer import FinishedFile
from shared.store import Store

_COPY_TOKENS = 1 << 20
_COPY_EMBEDDINGS = 1 << 14
# Of a run: its rows are looked at twice, and should be in the same part of a table both times.
_MOST_VIDEOS = 4096


@dataclass(frozen=True)
class SetPart:
    """A set to take from, and which of its videos."""

    manifest: ManifestSet
    keep: Keep


def why_not_editable(store: Store, name: str) -> str | None:
    """Why a set can only be made again and not edited; None when it can be edited."""
    entry = store.root.sets[name]
    stream = store.root.streams.get(entry.stream)
    if stream is None or stream.fingerprint != entry.stream_fingerprint:
        return "it was cut for another version of its stream"
    known = {"manifest.json", *store.manifest_set(name).info.data_files}
    extra = sorted(
        path for path in store.root.files if path.startswith(f"{entry.path}/") and path.rpartition("/")[2] not in known
    )
    return f"it has a file that cannot be edited, {extra[0]}" if extra else None


def mentions(manifest: ManifestSet, keep: Keep) -> bool:
    """Whether a set says anything of a video that `keep` does not keep."""
    videos = (row["video_id"] for row in manifest.rows("videos", VIDEO_COLUMNS))
    failures = (row["video_id"] for row in manifest.rows("failures", FAILURE_COLUMNS))
    return not all(map(keep, videos)) or not all(map(keep, failures))


def write_set(parts: Sequence[SetPart], directory: Path, edited_by: str) -> tuple[ManifestInfo, list[FinishedFile]]:
    """The kept videos of all parts, one part after another, as a set like the first one's.

    Its report says only how it came about: a report of the old set tells of videos, with examples of their captions.
    Raises DamageFound where a set's tables do not fit each other.
    """
    output = _SetCopier(directory, parts[0].manifest.info.embeddings)
    for part in parts:
        output.take(part)
    made, files = output.finish(parts[0].manifest.info, {"edited_by": edited_by})
    return made, list(files)


class _SetCopier:
    """Puts a set together from pieces of others' tables. What differs is written again: numbers of captions, counts.

    A table holds the rows of a video together, in the order of videos.csv, which says how many there are.
    """

    def __init__(self, directory: Path, embeddings: EmbeddingInfo | None) -> None:
        """embeddings: of every set that is taken from."""
        with disk_full_stops(directory):
            directory.mkdir(parents=True, exist_ok=True)
            self._tokens = NpyRowFile(directory / "tokens", (), np.dtype(np.int32))
            self._offsets = NpyRowFile(directory / "offsets", (), np.dtype(np.int64))
            self._offsets.append(np.zeros(1, np.int64))
            self._embeddings = None if embeddings is None else embedding_file(directory, embeddings)
        self._directory = directory
        self._videos = CsvParts(directory, "videos", VIDEO_COLUMNS)
        self._failures = CsvParts(directory, "failures", FAILURE_COLUMNS)
        self._captions = RawParts(directory, "captions", CAPTION_COLUMNS)
        self._windows: dict[str, RawParts] = {}
        self._counts: Counter[str] = Counter()  # windows of each split
        self.captions = self.tokens = 0

    def take(self, part: SetPart) -> None:
        """Raises DamageFound where the tables do not fit each other, StoppedEarly on a full disk."""
        manifest = part.manifest
        try:
            runs = [_Run(videos) for videos in _kept_runs(manifest, part.keep)]
        except ValueError as error:
            raise DamageFound(f"{manifest.path}/videos.csv has a row that is none: {error}; run `verify`") from None
        captions = RawTable(manifest, "captions")
        windows = {split: RawTable(manifest, f"windows-{split}") for split in manifest.splits}
        for run in runs:
            run.check(captions, windows)
            self._take_run(run, manifest, captions, windows)
        for row in manifest.rows("failures", FAILURE_COLUMNS):
            if part.keep(row["video_id"]):
                self._failures.write([row[column] for column in FAILURE_COLUMNS])

    def finish(self, like: ManifestInfo, report: dict[str, object]) -> tuple[ManifestInfo, tuple[FinishedFile, ...]]:
        with disk_full_stops(self._directory):
            self._tokens.finish()
            self._offsets.finish()
            if self._embeddings is not None:
                self._embeddings.finish()
        parts = {path.name: rows for table in (self._videos, self._failures) for path, rows in table.finish()}
        for raw in (self._captions, *self._windows.values()):
            parts |= raw.finish()
        return finish_set(
            self._directory,
            like.model_copy(
                update={
                    "fingerprint": "",
                    "captions": self.captions,
                    "tokens": self.tokens,
                    "splits": dict(sorted(self._counts.items())),
                    "parts": dict(sorted(parts.items())),
                    "report": report,
                }
            ),
        )

    def _take_run(self, run: _Run, manifest: ManifestSet, captions: RawTable, windows: dict[str, RawTable]) -> None:
        shift = self.captions - run.first_caption
        for rows in captions.rows(run.first_caption, run.last_caption):
            self._captions.add(rows)
        self._take_twins(manifest, run)
        for split, (first, last) in run.windows.items():
            if split not in self._windows:
                self._windows[split] = RawParts(self._directory, f"windows-{split}", WINDOW_COLUMNS)
            for rows in windows[split].rows(first, last):
                for some in renumbered(rows, shift):
                    self._windows[split].add(some)
            self._counts[split] += last - first
        for video in run.videos:
            self._videos.write([video.row[column] for column in VIDEO_COLUMNS])

    def _take_twins(self, manifest: ManifestSet, run: _Run) -> None:
        offsets = manifest.token_offsets[run.first_caption : run.last_caption + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        with disk_full_stops(self._directory):
            self._offsets.append(offsets[1:] - first + self.tokens)
            for start in range(first, last, _COPY_TOKENS):
                self._tokens.append(manifest.token_range(start, min(last, start + _COPY_TOKENS)))
            if self._embeddings is not None:
                for start in range(run.first_caption, run.last_caption, _COPY_EMBEDDINGS):
                    end = min(run.last_caption, start + _COPY_EMBEDDINGS)
                    self._embeddings.append(manifest.embeddings[start:end])
        self.captions += run.last_caption - run.first_caption
        self.tokens += last - first


@dataclass(frozen=True)
class _Video:
    """row: of videos.csv; where its captions begin in the set's, and its windows in those of its split."""

    row: dict[str, str]
    first_caption: int
    first_window: int

    @property
    def captions(self) -> int:
        return int(self.row["captions"])

    @property
    def windows(self) -> int:
        return int(self.row["windows"])


class _Run:
    """Some videos that follow each other and are all kept: whole pieces of the tables are theirs."""

    def __init__(self, videos: list[_Video]) -> None:
        self.videos = videos
        self.first_caption = videos[0].first_caption
        self.last_caption = videos[-1].first_caption + videos[-1].captions
        self.windows: dict[str, tuple[int, int]] = {}
        for video in videos:
            if video.windows:
                first, _ = self.windows.get(video.row["split"], (video.first_window, 0))
                self.windows[video.row["split"]] = first, video.first_window + video.windows

    def check(self, captions: RawTable, windows: dict[str, RawTable]) -> None:
        """The first row of every video is of that video, in both tables. Raises DamageFound."""
        for video in self.videos:
            field = csv_field(video.row["video_id"])
            for table, first, count in (
                (captions, video.first_caption, video.captions),
                (windows.get(video.row["split"]), video.first_window, video.windows),
            ):
                if count and not (table and _is_of(table, first, count, field)):
                    raise DamageFound(
                        f"the tables of a set do not fit each other at video {video.row['video_id']!r}; "
                        "run `verify`, then make the set again with `python -m preprocess manifests CONFIG`"
                    )


def _is_of(table: RawTable, first: int, count: int, field: bytes) -> bool:
    if first + count > len(table):
        return False
    rows = [row for edge in (first, first + count - 1) for row in table.rows(edge, edge + 1)]
    return all(row.begins_with(field) for row in rows)


def _kept_runs(manifest: ManifestSet, keep: Keep) -> Iterator[list[_Video]]:
    run: list[_Video] = []
    caption = 0
    window: Counter[str] = Counter()
    for row in manifest.rows("videos", VIDEO_COLUMNS):
        video = _Video(row, caption, window[row["split"]])
        caption += video.captions
        window[row["split"]] += video.windows
        if keep(row["video_id"]):
            run.append(video)
        if run and (len(run) == _MOST_VIDEOS or run[-1] is not video):
            yield run
            run = []
    if run:
        yield run
