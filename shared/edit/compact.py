"""Small shards, as many appends and removals leave them, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from shared.captions import read_caption_shard, write_caption_shard
from shared.edit.take import shard_number
from shared.fingerprint import fingerprint
from shared.rewrite import copy_videos
from shared.schema import CaptionRef, ShardRef, StreamEntry
from shared.shard_writer import FinishedShard, ShardWriter
from shared.store import StoreWriter

SHARD_VIDEOS = 1024


@dataclass(frozen=True)
class Compacted:
    """Shards before and after, of rows and of captions together."""

    before: int
    after: int


class _Sized(Protocol):
    @property
    def name(self) -> str: ...


RefT = TypeVar("RefT", bound=_Sized)


def compact(writer: StoreWriter, note: Callable[[str], None] = lambda _: None) -> Compacted:
    """Put neighbouring shards together up to 1,024 videos, and delete what killed runs left.

    Rows are copied, and each group of shards is a commit of its own: needs room for one shard of 1,024 videos, and
    what was done before a kill stays done. Doing it again changes nothing. Raises DamageFound, StoppedEarly.
    """
    writer.remove_leftovers()
    before = _count(writer)
    for field in ("streams", "pending"):
        for name in getattr(writer.root, field):
            _compact_stream(writer, field, name, note)
    _compact_captions(writer, note)
    return Compacted(before, _count(writer))


def _count(writer: StoreWriter) -> int:
    streams = [*writer.root.streams.values(), *writer.root.pending.values()]
    return sum(len(entry.shards) for entry in streams) + len(writer.root.captions)


def _compact_stream(writer: StoreWriter, field: str, name: str, note: Callable[[str], None]) -> None:
    for group in _groups(getattr(writer.root, field)[name].shards, lambda ref: ref.videos + ref.failed):
        entry: StreamEntry = getattr(writer.root, field)[name]
        shard = _together(writer, name, entry, group)
        rest = tuple(ref for ref in entry.shards if ref not in group)
        table = getattr(writer.root, field) | {name: entry.model_copy(update={"shards": (*rest, shard.ref)})}
        writer.commit(shard.files, **{field: table})
        note(f"{name}: {len(group)} shards are {shard.ref.name} now")


def _compact_captions(writer: StoreWriter, note: Callable[[str], None]) -> None:
    for group in _groups(writer.root.captions, lambda ref: ref.videos):
        videos = [
            video
            for ref in group
            for video in read_caption_shard(writer.path, ref.name, writer.root.files[f"captions/{ref.name}.json"])
        ]
        shard = write_caption_shard(writer.scratch, shard_number(group[0].name), videos)
        rest: tuple[CaptionRef, ...] = tuple(ref for ref in writer.root.captions if ref not in group)
        writer.commit(shard.files, captions=(*rest, shard.ref))
        note(f"captions: {len(group)} shards are {shard.ref.name} now")


def _groups(refs: Sequence[RefT], videos: Callable[[RefT], int]) -> Iterator[list[RefT]]:
    """Neighbours that fit into one shard together, at least two of them."""
    group: list[RefT] = []
    for ref in sorted(refs, key=lambda ref: ref.name):
        if group and sum(map(videos, group)) + videos(ref) > SHARD_VIDEOS:
            if len(group) > 1:
                yield group
            group = []
        group.append(ref)
    if len(group) > 1:
        yield group


def _together(writer: StoreWriter, name: str, entry: StreamEntry, group: Sequence[ShardRef]) -> FinishedShard:
    unit = fingerprint([ref.unit for ref in group])
    with ShardWriter(writer.scratch, name, entry, unit, shard_number(group[0].name)) as shard:
        for ref in group:
            copy_videos(writer.path, name, entry, ref, writer.root.files, shard)
        return shard.finish()
