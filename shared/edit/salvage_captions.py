"""What is left of a damaged shard of captions."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

from shared.captions import KeptCaptions, unpack_line, unpack_tracks
from shared.edit.ids import DAMAGED, tombstone
from shared.errors import DamageFound
from shared.schema import CaptionIndex, FailureRecord, InputRecord
from shared.store_files import stat_file

_CHUNK = 1 << 20


def from_index(text: Path, index: CaptionIndex) -> tuple[list[KeptCaptions], list[str]]:
    """A shard whose text file is damaged: (all its videos, the ids of those whose captions are lost).

    Texts before the damage are kept. A video that had no captions, or was removed, lacks nothing.
    """
    lines = dict(enumerate(_lines_before_damage(text)))
    videos, lost = [], []
    for number, record in enumerate(index.videos):
        kept = _unpacked(record, lines.get(number, b""))
        if kept is None and record.tracks:
            lost.append(record.id)
        videos.append(kept or _without_tracks(record))
    return videos, lost


def from_text(text: Path, present: Collection[str]) -> tuple[list[KeptCaptions], list[str]]:
    """A shard whose index is damaged: (all its videos, the ids of those taken for removed).

    Splits, attributes and failures stood in the index alone: the next run finds them in the input manifest. So did
    takedowns: a video without captions that is in no stream (`present`) is taken for one, as letting it in unasked
    would be worse. Raises DamageFound for a text file that cannot be read whole.
    """
    videos, buried = [], []
    for data in _lines_before_damage(text, strict=True):
        try:
            line = json.loads(data)
            tracks = unpack_tracks(line["tracks"])
            video_id = str(line["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise DamageFound(f"{text} holds a line that is none: {error}") from None
        removed = not tracks and video_id not in present
        buried += [video_id] if removed else []
        videos.append(KeptCaptions(video_id, None, {}, tracks, tombstone(video_id) if removed else None))
    return videos, buried


def _lines_before_damage(text: Path, *, strict: bool = False) -> Iterator[bytes]:
    """The lines of a gzip file as far as it can be read. strict: raises DamageFound where that is not to its end."""
    unpacker, rest = zlib.decompressobj(wbits=31), b""
    try:
        stat_file(text)
        with text.open("rb") as file:
            while chunk := file.read(_CHUNK):
                *lines, rest = (rest + unpacker.decompress(chunk)).split(b"\n")
                yield from lines
    except (OSError, zlib.error) as error:
        if strict:
            raise DamageFound(f"{text} cannot be read: {error}") from None
    if strict and (rest or not unpacker.eof):
        raise DamageFound(f"{text} ends in the middle")


def _unpacked(record: InputRecord, line: bytes) -> KeptCaptions | None:
    try:
        return unpack_line(record, json.loads(line))
    except (ValueError, KeyError, TypeError):
        return None


def _without_tracks(record: InputRecord) -> KeptCaptions:
    message = "its captions were damaged and dropped by `repair`; the next run reads them again"
    failure = record.failure
    if record.tracks:
        failure = FailureRecord(id=record.id, reason=DAMAGED, stage="captions", message=message)
    return KeptCaptions(record.id, record.split, record.attributes, (), failure)
