"""Manifest sets of a damaged store: twins made again, lost videos taken out, the rest dropped by name."""

from __future__ import annotations

from pathlib import Path

from shared.edit.mend import mend_twins
from shared.edit.sets import SetPart, why_not_editable, write_set
from shared.errors import DamageFound
from shared.manifest_set import ManifestSet
from shared.schema import TWINS, SetEntry
from shared.shard_writer import FinishedFile
from shared.store import Store, StoreWriter, set_entry
from shared.words import counted


def twins_again(store: Store, entry: SetEntry, broken: set[str], scratch: Path) -> list[FinishedFile]:
    """The binary twins of a set whose tables are whole; nothing where there is nothing to mend, or it cannot be."""
    twins = {f"{entry.path}/{name}" for name in TWINS}
    if not broken or broken - twins:
        return []
    try:
        made = mend_twins(ManifestSet(store.path, entry.path), entry.path, store.root.files, scratch)
    except (DamageFound, ValueError):
        return []
    return [file for file in made if file.path in broken]


def repair_set(
    writer: StoreWriter, name: str, broken: set[str], present: set[str]
) -> tuple[SetEntry | None, list[FinishedFile], str | None]:
    """(the set's entry or None when it is dropped, files, what was done to it and why or None).

    broken: its files that are damaged. present: the videos that its stream has rows of.
    """
    store = writer.store
    entry = store.root.sets[name]
    if broken:
        return None, [], f"dropped: {', '.join(sorted(path.rpartition('/')[2] for path in broken))} is damaged"
    stream = store.root.streams.get(entry.stream)
    if stream is None or stream.fingerprint != entry.stream_fingerprint:
        return entry, [], None  # out of date, which is no damage
    manifest = store.manifest_set(name)
    lost = set(manifest.video_ids) - present
    if not lost:
        return entry, [], None
    if why_not_editable(store, name):
        return None, [], "dropped: rows of its videos are lost"
    part = SetPart(manifest, lambda video_id: video_id not in lost)
    info, files = write_set([part], writer.scratch / f"set-{name}", "repair")
    return set_entry(info), files, f"{counted(len(lost), 'video')} taken out, whose rows are lost"
