"""Manifest sets without some videos, or put together from several stores. Captions are numbered again.

Reads and writes a row at a time: memory does not grow with the number of captions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from shared.edit.take import Keep
from shared.errors import DamageFound
from shared.manifest_set import ManifestSet
from shared.manifest_writer import CAPTION_COLUMNS, FAILURE_COLUMNS, VIDEO_COLUMNS, WINDOW_COLUMNS, ManifestSetWriter
from shared.schema import ManifestInfo
from shared.shard_writer import FinishedFile
from shared.store import Store

_TWINS = {"manifest.json", "tokens.npy", "offsets.npy"}


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
    known = _TWINS | set(store.manifest_set(name).info.parts)
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
    output = ManifestSetWriter(directory)
    for part in parts:
        _Copier(part.manifest, part.keep, output).copy()
    info = parts[0].manifest.info
    made, files = output.finish(
        name=info.name,
        stream=info.stream,
        stream_fingerprint=info.stream_fingerprint,
        config=info.config,
        tokenizer=info.tokenizer,
        report={"edited_by": edited_by},
    )
    return made, list(files)


class _Copier:
    """Walks the tables of a set side by side: each holds the rows of a video together, in the order of videos.csv."""

    def __init__(self, manifest: ManifestSet, keep: Keep, output: ManifestSetWriter) -> None:
        self._manifest, self._keep, self._output = manifest, keep, output
        self._captions = manifest.rows("captions", CAPTION_COLUMNS)
        self._windows = {split: manifest.rows(f"windows-{split}", WINDOW_COLUMNS) for split in manifest.splits}
        self._first = 0

    def copy(self) -> None:
        for video in self._manifest.rows("videos", VIDEO_COLUMNS):
            video_id, split = video["video_id"], video["split"]
            try:
                captions, windows = int(video["captions"]), int(video["windows"])
                rows = self._take(self._captions, captions, video_id)
                cut = self._take(self._windows.get(split, iter(())), windows, video_id)
                if self._keep(video_id):
                    self._write(video, rows, cut)
            except (ValueError, IndexError) as error:
                raise self._unfit(video_id, str(error)) from None
            self._first += captions
        for row in self._manifest.rows("failures", FAILURE_COLUMNS):
            if self._keep(row["video_id"]):
                self._output.add_failure(row["video_id"], row["stage"], row["reason"], row["message"])

    def _take(self, table: Iterator[dict[str, str]], count: int, video_id: str) -> list[dict[str, str]]:
        rows = list(islice(table, count))
        if len(rows) != count or any(row["video_id"] != video_id for row in rows):
            raise self._unfit(video_id, f"{count} rows of it were expected next in a table")
        return rows

    def _write(self, video: dict[str, str], captions: list[dict[str, str]], windows: list[dict[str, str]]) -> None:
        tokens = [np.array(self._manifest.caption_tokens(self._first + k)) for k in range(len(captions))]
        first = self._output.add_captions(
            video["video_id"],
            [float(row["start"]) for row in captions],
            [float(row["end"]) for row in captions],
            [row["text"] for row in captions],
            tokens,
        )
        moved = first - self._first
        for row in windows:
            bag = [int(number) + moved for number in row["captions"].split()]
            if bag and not first <= min(bag) <= max(bag) < first + len(captions):
                raise self._unfit(video["video_id"], "a window has captions of another video")
            self._output.add_window(
                video["split"], video["video_id"], float(row["start"]), float(row["end"]), int(row["first_row"]),
                int(row["rows"]), bag,
            )  # fmt: skip
        self._output.add_video(video["video_id"], video["split"], float(video["duration"]), int(video["rows"]))

    def _unfit(self, video_id: str, what: str) -> DamageFound:
        return DamageFound(
            f"{self._manifest.path}: the tables do not fit each other at video {video_id!r}: {what}; "
            "run `verify`, then make the set again with `python -m preprocess manifests CONFIG`"
        )
