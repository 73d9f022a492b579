"""Keeping inputs and captions as found, so that manifests can be made again without them."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from preprocess.inputs import InputVideo
from shared.captions import (
    FinishedCaptions,
    KeptCaptions,
    KeptTrack,
    read_caption_index,
    read_caption_shard,
    write_caption_shard,
)
from shared.edit.ids import is_tombstone
from shared.edit.take import shard_number
from shared.errors import Failure
from shared.fingerprint import hash_bytes
from shared.schema import CaptionRef, FailureRecord, InputRecord
from shared.store import StoreWriter

SHARD_VIDEOS = 1024
MAX_CAPTION_BYTES = 64 * 2**20
_LOST = ("missing_file", "outside_root", "unreadable")


@dataclass(frozen=True)
class KeepResult:
    """How many videos' captions were new, changed, or as the store had them.

    removed: the inputs that were removed from the store. Nothing of them is read until they are restored.
    """

    new: int
    changed: int
    unchanged: int
    removed: tuple[str, ...] = ()


def keep_captions(writer: StoreWriter, inputs: Sequence[InputVideo]) -> KeepResult:
    """Bring the store's `captions/` up to date with the inputs, in one commit.

    Shards with a changed video are written again, new videos go into new shards. Videos of earlier manifests stay, and
    so do captions whose file cannot be read any more.
    """
    found: dict[str, tuple[str, InputRecord]] = {}
    for ref in writer.root.captions:
        for record in read_caption_index(writer.path, ref.name).videos:
            found[record.id] = (ref.name, record)
    new = [video for video in inputs if video.video_id not in found]
    changed: dict[str, dict[str, KeptCaptions]] = {}
    removed = []
    for video in inputs:
        if video.video_id in found:
            shard, record = found[video.video_id]
            if is_tombstone(record):
                removed.append(video.video_id)
                continue
            kept = _read(video)
            if not _same(kept, record) and not _only_lost(kept, record):
                changed.setdefault(shard, {})[video.video_id] = kept
    _commit(writer, changed, new)
    changes = sum(len(videos) for videos in changed.values())
    return KeepResult(len(new), changes, len(inputs) - len(new) - changes - len(removed), tuple(removed))


def _only_lost(kept: KeptCaptions, record: InputRecord) -> bool:
    """Whether captions that the store has cannot be read now: a disk that is not mounted must not empty the store."""
    return kept.failure is not None and kept.failure.reason in _LOST and record.failure is None and bool(record.tracks)


def _commit(writer: StoreWriter, changed: dict[str, dict[str, KeptCaptions]], new: Sequence[InputVideo]) -> None:
    shards: list[FinishedCaptions] = []
    refs: list[CaptionRef] = [ref for ref in writer.root.captions if ref.name not in changed]
    for name, videos in sorted(changed.items()):
        whole = [videos.get(kept.video_id, kept) for kept in read_caption_shard(writer.path, name)]
        shards.append(write_caption_shard(writer.scratch, shard_number(name), whole))
    # The first numbers that are free: what a repair had to drop comes back under the number that it had.
    used = {shard_number(ref.name) for ref in writer.root.captions}
    chunks = range(0, len(new), SHARD_VIDEOS)
    free = islice((number for number in count() if number not in used), len(chunks))
    for first, number in zip(chunks, free, strict=True):
        kept = [_read(video) for video in new[first : first + SHARD_VIDEOS]]
        shards.append(write_caption_shard(writer.scratch, number, kept))
    if shards:
        refs = sorted([*refs, *(shard.ref for shard in shards)], key=lambda ref: ref.name)
        writer.commit([file for shard in shards for file in shard.files], captions=tuple(refs))


def _read(video: InputVideo) -> KeptCaptions:
    if video.caption_failure is not None:
        return _kept(video, (), video.caption_failure)
    if video.caption_path is None:
        return _kept(video, (), None)
    try:
        data = _read_bytes(video.caption_path)
    except OSError as error:
        reason = "missing_file" if isinstance(error, FileNotFoundError) else "unreadable"
        return _kept(video, (), Failure(reason, "captions", f"{video.caption_path.name}: {error.strerror}"))
    if data is None:
        message = f"{video.caption_path.name} is larger than {MAX_CAPTION_BYTES} bytes"
        return _kept(video, (), Failure("too_large", "captions", message))
    return _kept(video, (KeptTrack(video.caption_path.name, data),), None)


def _read_bytes(path: Path) -> bytes | None:
    if not path.is_file() and path.exists():
        raise OSError(errno.EINVAL, "not a regular file")  # opening a pipe would wait for ever
    with path.open("rb") as file:
        data = file.read(MAX_CAPTION_BYTES + 1)
    return data if len(data) <= MAX_CAPTION_BYTES else None


def _kept(video: InputVideo, tracks: tuple[KeptTrack, ...], failure: Failure | None) -> KeptCaptions:
    record = FailureRecord(id=video.video_id, **vars(failure)) if failure else None
    return KeptCaptions(video.video_id, video.split, video.attributes, tracks, record)


def _same(kept: KeptCaptions, record: InputRecord) -> bool:
    tracks = [(track.name, len(track.data), hash_bytes(track.data)) for track in kept.tracks]
    return (kept.split, kept.attributes, kept.failure) == (
        record.split,
        record.attributes,
        record.failure,
    ) and tracks == [(track.name, track.bytes, track.xxh3) for track in record.tracks]
