"""Several stores with the same streams in one new store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shared.edit.ids import input_records, is_tombstone, removed_ids, shard_indexes
from shared.edit.sets import SetPart, why_not_editable, write_set
from shared.edit.subset import Made
from shared.edit.take import Keep, Source, take_captions, take_stream
from shared.edit.target import copy_run_records, new_store
from shared.errors import RequestError, StoreError
from shared.schema import CaptionRef, InputRecord, SetEntry, StreamEntry
from shared.schema import Source as MediaSource
from shared.shard_writer import FinishedFile
from shared.store import Store, StoreWriter, open_store, set_entry
from shared.words import counted


@dataclass
class _Owners:
    """From which store (its number) each video is taken: for every stream, and the captions.

    conflicts: what stores say of one video that cannot both be true.
    """

    streams: dict[str, dict[str, int]] = field(default_factory=dict)
    captions: dict[str, int] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)

    def keeps(self, stream: str, number: int) -> Keep:
        """Whether store `number` gives a video's rows; its captions where the stream does not know the video."""
        rows = self.streams[stream]
        return lambda video_id: rows.get(video_id, self.captions.get(video_id, number)) == number


def merge_stores(target: Path, paths: Sequence[Path]) -> Made:
    """Make a store at `target` of all videos of two or more stores.

    A video that several hold is taken once, from the first that has rows of it. A manifest set that all stores have
    with the same config, tokenizer and stream is put together; others are left out, by name.
    Raises StoreError where the streams differ, where two stores hold one id with other content, and where one has
    removed what another holds, each time with the list; DamageFound, StoppedEarly.
    """
    if len(paths) < 2:
        raise RequestError(f"merge needs two stores or more, got {len(paths)}")
    if len({path.resolve() for path in paths}) < len(paths):
        raise RequestError("a store is named twice: nothing was changed")
    stores = [open_store(path) for path in paths]
    _refuse_other_streams(stores)
    owners = _owners(stores)
    if owners.conflicts:
        raise StoreError(
            f"{counted(len(owners.conflicts), 'conflict')}: videos stand in several stores and are not the same; "
            "leave them out of all but one with `preprocess subset`:\n  " + "\n  ".join(owners.conflicts)
        )
    with new_store(target) as writer:
        return _merge(stores, owners, writer)


def _refuse_other_streams(stores: Sequence[Store]) -> None:
    first = stores[0]
    faults = []
    for other in stores[1:]:
        for name in sorted(first.root.streams.keys() | other.root.streams.keys()):
            mine, theirs = first.root.streams.get(name), other.root.streams.get(name)
            if mine is None or theirs is None:
                faults.append(f"{first.path if mine is None else other.path} has no stream {name!r}")
            elif mine.fingerprint != theirs.fingerprint:
                faults.append(
                    f"stream {name!r} was made otherwise: fingerprint {mine.fingerprint} in {first.path}, "
                    f"{theirs.fingerprint} in {other.path}"
                )
    if faults:
        raise StoreError("the stores do not have the same streams:\n  " + "\n  ".join(faults))


def _owners(stores: Sequence[Store]) -> _Owners:
    owners = _Owners()
    buried: dict[str, int] = {}
    live: dict[str, int] = {}
    records: dict[str, InputRecord] = {}
    for number, store in enumerate(stores):
        for record in input_records(store):
            (buried if is_tombstone(record) else live).setdefault(record.id, number)
            owners.captions.setdefault(record.id, number)
            if record != records.setdefault(record.id, record) and not (
                is_tombstone(record) or is_tombstone(records[record.id])
            ):
                owners.conflicts.append(f"{record.id!r}: other captions, split or attributes in {store.path}")
    for name in stores[0].root.streams:
        owners.streams[name] = _rows_owners(stores, name, owners.conflicts)
        for video_id, number in owners.streams[name].items():
            live.setdefault(video_id, number)
    owners.conflicts += [
        f"{video_id!r}: removed from {stores[number].path}, but not from {stores[live[video_id]].path}: "
        "remove it there, or restore it here"
        for video_id, number in sorted(buried.items())
        if video_id in live
    ]
    return owners


def _rows_owners(stores: Sequence[Store], stream: str, conflicts: list[str]) -> dict[str, int]:
    owner: dict[str, int] = {}
    failed: set[str] = set()
    source: dict[str, MediaSource | None] = {}
    for number, store in enumerate(stores):
        for index in shard_indexes(store, stream, store.root.streams[stream]):
            found: list[tuple[str, MediaSource | None, bool]] = [(v.id, v.source, False) for v in index.videos]
            found += [(record.id, record.source, True) for record in index.failed]
            for video_id, media, is_failed in found:
                if media != source.setdefault(video_id, media):
                    conflicts.append(f"{video_id!r}: another media file in {store.path} (stream {stream!r})")
                if video_id not in owner or (video_id in failed and not is_failed):
                    owner[video_id] = number
                    (failed.add if is_failed else failed.discard)(video_id)
    return owner


def _merge(stores: Sequence[Store], owners: _Owners, writer: StoreWriter) -> Made:
    streams = {name: list[object]() for name in owners.streams}
    captions: list[CaptionRef] = []
    files: list[FinishedFile] = []
    for number, store in enumerate(stores):
        source = Source(store, writer.scratch / f"{number:05d}", copies=True)

        def edit(record: InputRecord, number: int = number) -> bool:
            return owners.captions[record.id] == number

        for name, entry in store.root.streams.items():
            refs, made = take_stream(source, name, entry, owners.keeps(name, number))
            streams[name] += refs
            files += made
        copy_run_records(store, writer)
        kept, made = take_captions(source, edit)
        captions += kept
        files += made
    sets, dropped, made = _merge_sets(stores, owners, writer)
    merged: dict[str, StreamEntry] = {
        name: entry.model_copy(update={"shards": tuple(streams[name])})
        for name, entry in stores[0].root.streams.items()
    }
    writer.commit([*files, *made], streams=merged, captions=tuple(captions), sets=sets)
    removed = removed_ids(writer.store)
    ids = set(owners.captions).union(*owners.streams.values()) - removed
    return Made(len(ids), tuple(dropped), len(removed))


def _merge_sets(
    stores: Sequence[Store], owners: _Owners, writer: StoreWriter
) -> tuple[dict[str, SetEntry], list[tuple[str, str]], list[FinishedFile]]:
    sets, dropped, files = dict[str, SetEntry](), list[tuple[str, str]](), list[FinishedFile]()
    for name in sorted({name for store in stores for name in store.root.sets}):
        why = _why_not_merged(stores, name)
        if why:
            dropped.append((name, why))
            continue
        stream = stores[0].root.sets[name].stream
        parts = [SetPart(store.manifest_set(name), owners.keeps(stream, number)) for number, store in enumerate(stores)]
        info, made = write_set(parts, writer.scratch / f"set-{name}", "merge")
        sets[name] = set_entry(info)
        files += made
    return sets, dropped, files


def _why_not_merged(stores: Sequence[Store], name: str) -> str | None:
    for store in stores:
        if name not in store.root.sets:
            return f"{store.path} does not have it"
        why = why_not_editable(store, name)
        if why:
            return f"in {store.path} {why}"
    facts = [store.manifest_set(name).info for store in stores]
    same = all(
        (f.config, f.tokenizer, f.stream, f.embeddings)
        == (facts[0].config, facts[0].tokenizer, facts[0].stream, facts[0].embeddings)
        for f in facts
    )
    return None if same else "the stores made it with other settings"
