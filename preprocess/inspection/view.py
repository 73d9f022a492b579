"""What a store says of one video, and of all in a line each."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from PIL import Image

from preprocess.captions.read import read_track
from preprocess.inspection.tables import rows_of_video
from shared.captions import KeptCaptions, read_caption_index, read_caption_shard
from shared.edit.ids import REMOVED, input_records, is_tombstone, known_ids
from shared.errors import Failure, StoreError
from shared.features import StreamReader
from shared.manifest_set import ManifestSet
from shared.manifest_writer import CAPTION_COLUMNS, FAILURE_COLUMNS, VIDEO_COLUMNS, WINDOW_COLUMNS
from shared.store import Store

MOST_PICTURES = 24
_MADE_WITHOUT = "made without it"


@dataclass(frozen=True)
class Span:
    """A thing in time: seconds, what it says, and more of it in few words."""

    start: float
    end: float
    text: str
    note: str = ""


@dataclass(frozen=True)
class StreamView:
    """A stream's rows of the video. spans: float64 (rows, 2), seconds; failure: why there are none."""

    name: str
    spans: np.ndarray
    failure: str = ""


@dataclass(frozen=True)
class TrackView:
    """A caption file as found. cues: as parsed, before cleaning; skipped: parts of it that are none."""

    name: str
    cues: tuple[Span, ...]
    skipped: int
    failure: str = ""


@dataclass(frozen=True)
class VideoView:
    """duration: seconds. captions: after cleaning; windows: `text` has the candidate captions, one a line.

    pictures: `text` is a data URI. missing: what the set says of why it lacks the video, or that there is no set.
    """

    video_id: str
    split: str
    duration: float
    attributes: dict[str, str]
    facts: tuple[tuple[str, str], ...]
    streams: tuple[StreamView, ...]
    tracks: tuple[TrackView, ...]
    set_name: str
    captions: tuple[Span, ...]
    windows: tuple[Span, ...]
    missing: str
    pictures: tuple[Span, ...]


@dataclass(frozen=True)
class Line:
    """One video of the list. rows: for each stream, their number, or why there are none.

    missing: why the set lacks the video; empty where it has it, and without a set.
    """

    video_id: str
    seconds: float | None
    rows: tuple[str, ...]
    captions: str
    windows: str
    split: str
    missing: str = ""


def choose_set(store: Store, name: str | None) -> ManifestSet | None:
    """The set asked for, else `default`, else the first by name, of those that fit their stream. Raises StoreError."""
    if name is not None:
        return store.manifest_set(name)
    streams = {stream: entry.fingerprint for stream, entry in store.root.streams.items()}
    fitting = [n for n, entry in store.root.sets.items() if streams.get(entry.stream) == entry.stream_fingerprint]
    return store.manifest_set(min(fitting, key=lambda found: (found != "default", found))) if fitting else None


def list_videos(store: Store, manifest: ManifestSet | None, limit: int) -> tuple[list[Line], int, int]:
    """The first `limit` videos by id, those that were removed included; how many there are; how many were removed."""
    removed = {record.id for record in input_records(store) if is_tombstone(record)}
    ids = sorted(known_ids(store) | removed)
    streams = [store.stream(name, verify="never") for name in store.root.streams]
    failed = [dict(stream.failures) for stream in streams]
    shown = ids[:limit]
    in_set, missing = _rows_of(manifest, set(shown)) if manifest is not None else ({}, {})
    lines = []
    for video_id in shown:
        if video_id in removed:
            lines.append(Line(video_id, None, ("removed",) * len(streams), "", "", ""))
            continue
        row = in_set.get(video_id, {})
        absent = "" if row or manifest is None else missing.get(video_id, _MADE_WITHOUT)
        counts = [_rows(stream, failures, video_id) for stream, failures in zip(streams, failed, strict=True)]
        seconds = [float(s.durations[n]) for s in streams for n in s.index_of([video_id]) if n >= 0]
        lines.append(
            Line(
                video_id, seconds[0] if seconds else None, tuple(counts), row.get("captions", ""),
                row.get("windows", ""), row.get("split", ""), absent,
            )
        )  # fmt: skip
    return lines, len(ids) - len(removed), len(removed)


def _rows_of(manifest: ManifestSet, wanted: set[str]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """By id: what the set has of these videos, and the reasons for which it left out others of them."""
    rows = manifest.rows("videos", VIDEO_COLUMNS)
    failures = manifest.rows("failures", FAILURE_COLUMNS)
    return (
        {row["video_id"]: row for row in rows if row["video_id"] in wanted},
        {row["video_id"]: row["reason"] for row in failures if row["video_id"] in wanted},
    )


def view_video(store: Store, video_id: str, manifest: ManifestSet | None) -> VideoView:
    """Everything about one video. Raises StoreError for an unknown one, DamageFound."""
    kept = _kept(store, video_id)
    if kept is not None and kept.failure is not None and kept.failure.reason == REMOVED:
        raise StoreError(f"{store.path}: {video_id!r} was removed; `preprocess restore` lets it in again")
    readers = {name: store.stream(name) for name in store.root.streams}
    streams = tuple(_stream(name, reader, video_id) for name, reader in readers.items())
    if kept is None and all(not len(stream.spans) and not stream.failure for stream in streams):
        raise StoreError(
            f"{store.path} has no video {video_id!r}; `preprocess inspect {store.path}` lists those it has"
        )
    numbers = {name: int(reader.index_of([video_id])[0]) for name, reader in readers.items()}
    records = [readers[name].record(number) for name, number in numbers.items() if number >= 0]
    duration = max((record.duration for record in records), default=0.0)
    tracks = tuple(_track(track.data, track.name) for track in kept.tracks) if kept else ()
    row, captions, windows, missing = _in_set(manifest, video_id)
    facts = [("Decoder", ", ".join(sorted({record.decoder for record in records})) or "none")]
    facts += [("Source", f"{records[0].source.bytes:,} bytes, xxh3 {records[0].source.xxh3}")] if records else []
    facts += [("Partial", "the file broke off; the rows before are kept")] if any(r.partial for r in records) else []
    facts += [("Captions", f"{kept.failure.reason}: {kept.failure.message}")] if kept and kept.failure else []
    return VideoView(
        video_id=video_id,
        split=row.get("split", "") or (kept.split if kept and kept.split else ""),
        duration=duration,
        attributes=kept.attributes if kept else {},
        facts=tuple(facts),
        streams=streams,
        tracks=tracks,
        set_name=manifest.name if manifest is not None else "",
        captions=captions,
        windows=windows,
        missing=missing,
        pictures=tuple(_pictures(readers, video_id)),
    )


def _rows(stream: StreamReader, failed: dict[str, Failure], video_id: str) -> str:
    number = int(stream.index_of([video_id])[0])
    if number >= 0:
        return str(stream.rows_per_video[number])
    return failed[video_id].reason if video_id in failed else "-"


def _kept(store: Store, video_id: str) -> KeptCaptions | None:
    for ref in store.root.captions:
        expected = store.root.files.get(f"captions/{ref.name}.json")
        places = [record.id for record in read_caption_index(store.path, ref.name, expected).videos]
        if video_id in places:
            place = places.index(video_id)
            return next(islice(read_caption_shard(store.path, ref.name, expected), place, None))
    return None


def _stream(name: str, reader: StreamReader, video_id: str) -> StreamView:
    number = int(reader.index_of([video_id])[0])
    if number >= 0:
        return StreamView(name, reader.spans(number))
    failure = dict(reader.failures).get(video_id)
    return StreamView(name, np.empty((0, 2)), f"{failure.reason}: {failure.message}" if failure else "")


def _track(data: bytes, name: str) -> TrackView:
    track = read_track(data, name)
    if isinstance(track, Failure):
        return TrackView(name, (), 0, f"{track.reason}: {track.message}")
    return TrackView(name, tuple(Span(cue.start, cue.end, cue.text) for cue in track.cues), len(track.skipped))


def _in_set(
    manifest: ManifestSet | None, video_id: str
) -> tuple[dict[str, str], tuple[Span, ...], tuple[Span, ...], str]:
    """(row of videos.csv, captions, windows, why there are none)."""
    if manifest is None:
        return (
            {},
            (),
            (),
            "the store has no manifest set that fits its stream; make one with `python -m preprocess manifests CONFIG`",
        )
    first = 0
    for row in manifest.rows("videos", VIDEO_COLUMNS):
        if row["video_id"] == video_id:
            found = rows_of_video(manifest, "captions", CAPTION_COLUMNS, video_id, int(row["captions"]))
            captions = [Span(float(c["start"]), float(c["end"]), c["text"]) for c in found]
            return row, tuple(captions), tuple(_windows(manifest, row, first, captions)), ""
        first += int(row["captions"])
    for failure in manifest.rows("failures", FAILURE_COLUMNS):
        if failure["video_id"] == video_id:
            return {}, (), (), f"{failure['stage']}: {failure['reason']}: {failure['message']}"
    return {}, (), (), "the set was made without it; make it again with `python -m preprocess manifests CONFIG`"


def _windows(manifest: ManifestSet, row: dict[str, str], first: int, captions: Sequence[Span]) -> Iterator[Span]:
    if row["windows"] == "0":
        return
    table = f"windows-{row['split']}"
    for window in rows_of_video(manifest, table, WINDOW_COLUMNS, row["video_id"], int(row["windows"])):
        bag = [captions[int(number) - first].text for number in window["captions"].split()]
        start, last = int(window["first_row"]), int(window["first_row"]) + int(window["rows"]) - 1
        note = f"row {start}" if start == last else f"rows {start} to {last}"
        yield Span(float(window["start"]), float(window["end"]), "\n".join(bag), note)


def _pictures(readers: dict[str, StreamReader], video_id: str) -> Iterator[Span]:
    """Some of the rows of the first stream of colour pictures (or clips of them), evenly spread."""
    for _, reader in sorted(readers.items()):
        shape, number = reader.row_shape, int(reader.index_of([video_id])[0])
        if reader.entry.kind != "frames" or len(shape) not in (3, 4) or shape[-1] != 3 or number < 0:
            continue
        rows, spans = reader.read(number), reader.spans(number)
        for row in np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_PICTURES)).round().astype(int)):
            picture_HWC = rows[row] if len(shape) == 3 else rows[row][0]
            yield Span(float(spans[row, 0]), float(spans[row, 1]), _data_uri(picture_HWC))
        return


def _data_uri(picture_HWC: np.ndarray) -> str:
    """uint8 (H, W, 3) as a JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture_HWC)).save(buffer, "JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
