"""Inputs and captions as found: one compressed JSON-lines file and one index per shard of videos.

`captions/<shard>.jsonl.gz` holds a line per video: {"id", "tracks": [{"name", "text"} or {"name", "base64"}]}: bytes
that are valid UTF-8 stand as text, any others in base64, so that nothing is changed on the way in.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from shared.atomic import write_new_file
from shared.errors import DamageFound
from shared.explain import first_fault
from shared.fingerprint import canonical_json, fingerprint, hash_bytes
from shared.schema import CaptionIndex, CaptionRef, CaptionTrackRecord, FailureRecord, FileEntry, InputRecord
from shared.shard_writer import FinishedFile
from shared.store_files import REPAIR, read_file, stat_file, unreadable

if TYPE_CHECKING:
    from shared.store import Store


@dataclass(frozen=True)
class KeptTrack:
    """One caption file, byte for byte. `name` is its file name, whose extension helps to tell the format."""

    name: str
    data: bytes


@dataclass(frozen=True)
class KeptCaptions:
    """One video as the input manifest gave it, and its caption tracks as found (or why they could not be kept)."""

    video_id: str
    split: str | None
    attributes: dict[str, str]
    tracks: tuple[KeptTrack, ...]
    failure: FailureRecord | None = None


@dataclass(frozen=True)
class FinishedCaptions:
    ref: CaptionRef
    files: tuple[FinishedFile, ...]


def write_caption_shard(scratch: Path, number: int, videos: Sequence[KeptCaptions]) -> FinishedCaptions:
    """Write one shard into `scratch`; `store.StoreWriter.commit` moves it."""
    scratch.mkdir(parents=True, exist_ok=True)
    index = CaptionIndex(videos=tuple(_input_record(video) for video in videos))
    index_data = canonical_json(index.model_dump(mode="json"))
    text_data = _pack(videos)
    name = f"{number:05d}-{fingerprint([hash_bytes(index_data), hash_bytes(text_data)])[:12]}"
    files = []
    for suffix, data in ((".json", index_data), (".jsonl.gz", text_data)):
        path = scratch / f"captions-{name}{suffix}"
        write_new_file(path, data)
        files.append(FinishedFile(path, f"captions/{name}{suffix}", FileEntry(bytes=len(data), xxh3=hash_bytes(data))))
    return FinishedCaptions(CaptionRef(name=name, videos=len(videos)), tuple(files))


def read_captions(store: Store) -> Iterator[KeptCaptions]:
    """Every video that the store has inputs of, shard by shard, in the order of the shards. Raises DamageFound."""
    for ref in store.root.captions:
        yield from read_caption_shard(store.path, ref.name, store.root.files.get(f"captions/{ref.name}.json"))


def read_caption_shard(store: Path, name: str, expected: FileEntry | None = None) -> Iterator[KeptCaptions]:
    """One shard's videos. expected: what the root says of its index. Raises DamageFound naming the file."""
    index = read_caption_index(store, name, expected)
    path = store / "captions" / f"{name}.jsonl.gz"
    try:
        stat_file(path)
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
            for record, line in zip(index.videos, lines, strict=True):
                yield unpack_line(record, json.loads(line))
    except (gzip.BadGzipFile, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise DamageFound(f"{path} cannot be read: {error}; {REPAIR}") from None
    except OSError as error:
        raise unreadable(path, error) from None


def read_caption_index(store: Path, name: str, expected: FileEntry | None = None) -> CaptionIndex:
    """`<shard>.json`, checked against what the root says of it where that is given. Raises DamageFound."""
    path = store / "captions" / f"{name}.json"
    try:
        data = read_file(path)
        if expected is not None and hash_bytes(data) != expected.xxh3:
            raise DamageFound(f"{path} is damaged: its content changed; {REPAIR}")
        return CaptionIndex.model_validate_json(data)
    except OSError as error:
        raise unreadable(path, error) from None
    except ValidationError as error:
        raise DamageFound(f"{path} is not a caption index: {first_fault(error)}; {REPAIR}") from None


def _input_record(video: KeptCaptions) -> InputRecord:
    return InputRecord(
        id=video.video_id,
        split=video.split,
        attributes=video.attributes,
        tracks=_track_records(video.tracks),
        failure=video.failure,
    )


def _track_records(tracks: Sequence[KeptTrack]) -> tuple[CaptionTrackRecord, ...]:
    return tuple(CaptionTrackRecord(name=t.name, bytes=len(t.data), xxh3=hash_bytes(t.data)) for t in tracks)


def _pack(videos: Sequence[KeptCaptions]) -> bytes:
    buffer = io.BytesIO()
    # No name and no time in the gzip header: same captions, same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=6, mtime=0) as file:
        for video in videos:
            line = {"id": video.video_id, "tracks": [_pack_track(track) for track in video.tracks]}
            file.write(json.dumps(line, ensure_ascii=False, sort_keys=True).encode() + b"\n")
    return buffer.getvalue()


def _pack_track(track: KeptTrack) -> dict[str, str]:
    try:
        return {"name": track.name, "text": track.data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"name": track.name, "base64": base64.b64encode(track.data).decode()}


def unpack_line(record: InputRecord, line: dict[str, object]) -> KeptCaptions:
    """A line of the text file as its index describes it. Raises ValueError, KeyError, TypeError where it does not."""
    if line["id"] != record.id or not isinstance(line["tracks"], list):
        raise ValueError(f"line of {line['id']!r} where the index says {record.id!r}")
    tracks = unpack_tracks(line["tracks"])
    if _track_records(tracks) != record.tracks:
        raise ValueError(f"the tracks of {record.id!r} are not those that the index describes")
    return KeptCaptions(record.id, record.split, record.attributes, tracks, record.failure)


def unpack_tracks(tracks: list[dict[str, str]]) -> tuple[KeptTrack, ...]:
    """The caption files of a line. Raises ValueError, KeyError, TypeError for what is none."""
    return tuple(KeptTrack(track["name"], _track_bytes(track)) for track in tracks)


def _track_bytes(track: dict[str, str]) -> bytes:
    return track["text"].encode() if "text" in track else base64.b64decode(track["base64"], validate=True)
