"""Keeping inputs and captions as found, so that manifests can be made again without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from preprocess.caption_reader import CaptionReader, CaptionsConfig, caption_reader
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
from shared.schema import CaptionRef, FailureRecord, InputRecord, Source
from shared.store import StoreWriter

SHARD_VIDEOS = 1024
_AS_NAMED = CaptionsConfig()  # the files that the input manifest names, and no others
_LOST = ("missing_file", "outside_root", "unreadable")


@dataclass(frozen=True)
class KeepResult:
    """How many videos' captions were new, changed, or as the store had them.

    removed: the inputs that were removed from the store. Nothing of them is read until they are restored.
    others: videos of the store that are not among the inputs.
    """

    new: int
    changed: int
    unchanged: int
    removed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def keep_captions(
    writer: StoreWriter,
    inputs: Sequence[InputVideo],
    config: CaptionsConfig = _AS_NAMED,
    source_of: Callable[[Path], Source | None] = lambda _: None,
) -> KeepResult:
    """Bring the store's `captions/` up to date with the inputs, in one commit.

    Shards with a changed video are written again, new videos go into new shards. Videos of earlier manifests stay, and
    so do captions whose file cannot be read any more. source_of: the identity of a media file, for subtitles inside it.
    """
    found: dict[str, tuple[str, InputRecord]] = {}
    for ref in writer.root.captions:
        for record in read_caption_index(writer.path, ref.name).videos:
            found[record.id] = (ref.name, record)
    new = [video for video in inputs if video.video_id not in found]
    known = [video for video in inputs if video.video_id in found]
    removed = tuple(video.video_id for video in known if is_tombstone(found[video.video_id][1]))
    given = {video.video_id for video in inputs}
    others = tuple(name for name, (_, record) in found.items() if name not in given and not is_tombstone(record))
    changed: dict[str, dict[str, KeptCaptions]] = {}
    with caption_reader(config, inputs, writer.scratch, source_of) as reader:
        for video in known:
            shard, record = found[video.video_id]
            if not is_tombstone(record) and (kept := _changed(reader, video, record)):
                changed.setdefault(shard, {})[video.video_id] = kept
        _commit(writer, reader, changed, new)
    changes = sum(len(videos) for videos in changed.values())
    return KeepResult(len(new), changes, len(known) - changes - len(removed), removed, others)


def caption_failures(store: Path, refs: Sequence[CaptionRef]) -> list[tuple[str, Failure]]:
    """(video id, why its captions could not be kept), of every video whose captions could not. Raises DamageFound."""
    return [
        (record.id, Failure(record.failure.reason, record.failure.stage, record.failure.message))
        for ref in refs
        for record in read_caption_index(store, ref.name).videos
        if record.failure is not None and not is_tombstone(record)
    ]


def _changed(reader: CaptionReader, video: InputVideo, record: InputRecord) -> KeptCaptions | None:
    """The video as it is now, where the store has it otherwise."""
    if reader.is_kept(video, record) and (video.split, video.attributes) == (record.split, record.attributes):
        return None
    kept = _read(reader, video)
    return None if _same(kept, record) or _only_lost(kept, record) else kept


def _only_lost(kept: KeptCaptions, record: InputRecord) -> bool:
    """Whether captions that the store has cannot be read now: a disk that is not mounted must not empty the store."""
    return kept.failure is not None and kept.failure.reason in _LOST and record.failure is None and bool(record.tracks)


def _commit(
    writer: StoreWriter,
    reader: CaptionReader,
    changed: dict[str, dict[str, KeptCaptions]],
    new: Sequence[InputVideo],
) -> None:
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
        kept = [_read(reader, video) for video in new[first : first + SHARD_VIDEOS]]
        shards.append(write_caption_shard(writer.scratch, number, kept))
    if shards:
        refs = sorted([*refs, *(shard.ref for shard in shards)], key=lambda ref: ref.name)
        writer.commit([file for shard in shards for file in shard.files], captions=tuple(refs))


def _read(reader: CaptionReader, video: InputVideo) -> KeptCaptions:
    found = reader.read(video)
    tracks = (found,) if isinstance(found, KeptTrack) else ()
    failure = FailureRecord(id=video.video_id, **vars(found)) if isinstance(found, Failure) else None
    return KeptCaptions(video.video_id, video.split, video.attributes, tracks, failure)


def _same(kept: KeptCaptions, record: InputRecord) -> bool:
    tracks = [(track.name, len(track.data), hash_bytes(track.data)) for track in kept.tracks]
    return (kept.split, kept.attributes, kept.failure) == (
        record.split,
        record.attributes,
        record.failure,
    ) and tracks == [(track.name, track.bytes, track.xxh3) for track in record.tracks]
