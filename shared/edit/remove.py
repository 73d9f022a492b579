"""Takedowns: a video leaves the store with all that was made of it, and stays out until it is restored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared.captions import KeptCaptions, write_caption_shard
from shared.edit.ids import input_records, is_tombstone, known_ids, listing, refuse_unknown, removed_ids, tombstone
from shared.edit.sets import SetPart, mentions, why_not_editable, write_set
from shared.edit.take import Source, shard_number, take_captions, take_stream
from shared.errors import StoreError
from shared.schema import CaptionRef, InputRecord, SetEntry, StreamEntry
from shared.shard_writer import FinishedFile
from shared.store import StoreWriter, set_entry


@dataclass(frozen=True)
class Removal:
    """removed: the ids that left now. sets: those edited. dropped: why each set was dropped that could not be."""

    removed: tuple[str, ...]
    sets: tuple[str, ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()


def remove_videos(writer: StoreWriter, ids: Sequence[str]) -> Removal:
    """Take videos out of every stream, the captions and the manifest sets, in one commit.

    Their shards are written again without them, so nothing of them is left in the store but their ids, which keep later
    runs from extracting them again. Ids that were removed before are passed over.
    Needs room for a copy of the shards that hold them. Raises StoreError naming unknown ids, DamageFound, StoppedEarly.
    """
    store, wanted = writer.store, set(ids)
    gone = removed_ids(store)
    refuse_unknown(store, ids, known_ids(store) | gone)
    wanted -= gone
    if not wanted:
        return Removal(())
    source = Source(store, writer.scratch, copies=False)

    def keep(video_id: str) -> bool:
        return video_id not in wanted

    files: list[FinishedFile] = []
    tables: dict[str, dict[str, StreamEntry]] = {"streams": {}, "pending": {}}
    for field, streams in (("streams", store.root.streams), ("pending", store.root.pending)):
        for name, entry in streams.items():
            refs, made = take_stream(Source(store, writer.scratch / field, copies=False), name, entry, keep)
            tables[field][name] = entry.model_copy(update={"shards": refs})
            files += made
    sets, edited, dropped, made = _edit_sets(writer, wanted)
    files += made
    captions = _bury(source, wanted, files)
    writer.commit(files, streams=tables["streams"], pending=tables["pending"], captions=captions, sets=sets)
    return Removal(tuple(sorted(wanted)), tuple(edited), tuple(dropped))


def restore_videos(writer: StoreWriter, ids: Sequence[str]) -> tuple[str, ...]:
    """Let removed videos in again: the next run takes them for new. Raises StoreError for ids that were not removed."""
    gone, wanted = removed_ids(writer.store), set(ids)
    other = [video_id for video_id in ids if video_id not in gone]
    if other:
        raise StoreError(f"{writer.path}: {listing(other)} was not removed from it: nothing was changed")

    def edit(record: InputRecord) -> bool:
        return record.id not in wanted

    refs, files = take_captions(Source(writer.store, writer.scratch, copies=False), edit)
    writer.commit(files, captions=tuple(refs))
    return tuple(sorted(wanted))


def _bury(source: Source, wanted: set[str], files: list[FinishedFile]) -> tuple[CaptionRef, ...]:
    """Tombstones in the places of the videos' captions, and for those that have none in a shard of their own."""

    def edit(record: InputRecord) -> KeptCaptions | bool:
        return _buried(record.id) if record.id in wanted and not is_tombstone(record) else True

    refs, made = take_captions(source, edit)
    files += made
    unseen = sorted(wanted - {record.id for record in input_records(source.store)})
    if unseen:
        number = 1 + max((shard_number(ref.name) for ref in source.store.root.captions), default=-1)
        shard = write_caption_shard(source.scratch, number, [_buried(video_id) for video_id in unseen])
        refs.append(shard.ref)
        files += shard.files
    return tuple(refs)


def _buried(video_id: str) -> KeptCaptions:
    return KeptCaptions(video_id, None, {}, (), tombstone(video_id))


def _edit_sets(
    writer: StoreWriter, wanted: set[str]
) -> tuple[dict[str, SetEntry], list[str], list[tuple[str, str]], list[FinishedFile]]:
    store, edited, dropped, files = writer.store, list[str](), list[tuple[str, str]](), list[FinishedFile]()
    sets = dict(store.root.sets)

    def keep(video_id: str) -> bool:
        return video_id not in wanted

    for name in store.root.sets:
        why = why_not_editable(store, name)
        if why:
            dropped.append((name, why))
            del sets[name]
            continue
        manifest = store.manifest_set(name)
        if mentions(manifest, keep):
            info, made = write_set([SetPart(manifest, keep)], writer.scratch / f"set-{name}", "remove")
            sets[name] = set_entry(info)
            files += made
            edited.append(name)
    return sets, edited, dropped, files
