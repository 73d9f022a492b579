"""Making a damaged store whole: mend what can be mended to the bit, keep what is sound, drop the rest by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shared.atomic import make_directory, move_into_place, replace_file
from shared.captions import read_caption_index, write_caption_shard
from shared.checks import check_file
from shared.edit.ids import ids_of
from shared.edit.mend import mend_file, unflipped_seal
from shared.edit.repair_sets import repair_set, twins_again
from shared.edit.salvage import DamagedShard
from shared.edit.salvage_captions import from_index, from_text
from shared.edit.take import shard_number
from shared.errors import DamageFound
from shared.index_cache import damaged_indexes, drop_indexes
from shared.lease import writer_lease
from shared.schema import CaptionRef, SetEntry, ShardIndex, ShardRef, StreamEntry, stream_folder
from shared.shard_writer import FinishedFile
from shared.store import ROOT, StoreWriter, list_files, open_store, open_writer, parse_root
from shared.store_files import NotAFileError, is_damage, read_file, unreadable
from shared.stream_index import read_shard_index
from shared.verify import damaged_runs, verify_store
from shared.words import counted

ASIDE = "set-aside"


@dataclass
class Repaired:
    """What a repair did.

    mended: files that are to the bit what they were. lost: for each stream, the videos whose rows are gone, which the
    next run extracts again. unnamed: shards that were dropped whole, with the number of their videos, whose names are
    lost with their index. captions: the videos whose captions are gone, which the next run reads again.
    buried: videos that are taken for removed (see salvage_captions). sets: those edited, and those dropped with why.
    aside: files of others that were moved to `set-aside/`. deleted: run records.
    """

    mended: list[str] = field(default_factory=list)
    lost: dict[str, list[str]] = field(default_factory=dict)
    unnamed: list[tuple[str, int]] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    caption_shards: list[str] = field(default_factory=list)
    buried: list[str] = field(default_factory=list)
    sets: list[tuple[str, str]] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    @property
    def did_nothing(self) -> bool:
        return self == Repaired()


def repair_store(path: Path, progress: Callable[[str], None] = lambda _: None) -> Repaired:
    """Leave a store that `verify` calls whole, in one commit.

    A shard of which a video's rows are damaged keeps the others; the next run extracts the whole shard again as far as
    its inputs can be read, so that the store becomes what it was, and keeps the rows of those that cannot.
    Raises DamageFound for a root that cannot be mended, and where damage is left; StoreError, StoppedEarly.
    """
    done = Repaired()
    _mend_root(path, done)
    with open_writer(path) as writer:
        _Repair(writer, done, progress).run()
        if damaged_indexes(path):
            drop_indexes(path)
    left = verify_store(path, progress)
    if left:
        listed = "\n  ".join(f"{damage.path}: {damage.what}" for damage in left[:20])
        raise DamageFound(f"{counted(len(left), 'damage')} in {path} beyond repair:\n  {listed}")
    return done


def _mend_root(path: Path, done: Repaired) -> None:
    try:
        open_store(path)
    except DamageFound as error:
        data = unflipped_seal(read_file(path / ROOT))
        if data is None:
            raise DamageFound(
                f"{error}. It cannot be repaired: what it said of the other files stands nowhere else. Put a copy of "
                f"{ROOT} back if there is one; otherwise run preprocessing into a new folder"
            ) from None
        with writer_lease(path):
            replace_file(path / ROOT, data)
        parse_root(data, path / ROOT)
        done.mended.append(ROOT)


class _Repair:
    """One repair, step by step. What is to be committed gathers in `files` and `changes`."""

    def __init__(self, writer: StoreWriter, done: Repaired, progress: Callable[[str], None]) -> None:
        self._writer, self._done, self._progress = writer, done, progress
        self._store = writer.store
        self._files: list[FinishedFile] = []
        self._broken: set[str] = set()
        self._present: dict[str, set[str]] = {}  # for each stream, who has rows in it after the repair
        self._known: set[str] = set()  # every video of any stream, failed or lost ones, too

    def run(self) -> None:
        self._writer.remove_leftovers()
        self._put_aside()
        for path, entry in self._store.root.files.items():
            self._progress(path)
            if check_file(self._store.path / path, entry):
                self._broken.add(path)
        self._mend_small()
        tables = {
            "streams": self._streams(self._store.root.streams, self._present),
            "pending": self._streams(self._store.root.pending, {}),
        }
        captions = self._captions()
        sets = self._sets()
        if self._files or (tables["streams"], tables["pending"], captions, sets) != (
            self._store.root.streams,
            self._store.root.pending,
            self._store.root.captions,
            self._store.root.sets,
        ):
            self._writer.commit(self._files, **tables, captions=captions, sets=sets)
        self._run_records()

    def _sets(self) -> dict[str, SetEntry]:
        sets = {}
        for name, entry in self._store.root.sets.items():
            broken = {path for path in self._broken if path.startswith(f"{entry.path}/")}
            for file in twins_again(self._store, entry, broken, self._writer.scratch / "twins"):
                self._in_place(file)
                broken.discard(file.path)
            kept, files, why = repair_set(self._writer, name, broken, self._present.get(entry.stream, set()))
            self._files += files
            if why:
                self._done.sets.append((name, why))
            if kept:
                sets[name] = kept
        return sets

    def _put_aside(self) -> None:
        """Files that the root does not name and clipmill never gave: not ours to delete, and not to be left there."""
        for path in list_files(self._store.path):
            if path not in self._store.root.files:
                target = self._store.path / ASIDE / path
                make_directory(target.parent)
                (self._store.path / path).replace(target)
                self._done.aside.append(path)
        self._writer.drop_empty_folders()

    def _mend_small(self) -> None:
        """Indexes first: what they say is needed to mend the rest."""
        for path in sorted(self._broken):
            if path.endswith((".json", ".jsonl.gz", ".csv")):
                file = mend_file(self._store.path, path, self._store.root.files[path], self._writer.scratch / "mended")
                if file is not None:
                    self._in_place(file)

    def _in_place(self, file: FinishedFile) -> None:
        """The very bytes that the root names: given back at once, so that the next steps can read them."""
        target = self._store.path / file.path
        make_directory(target.parent)
        move_into_place(file.scratch, target)
        self._broken.discard(file.path)
        self._done.mended.append(file.path)

    def _streams(self, streams: dict[str, StreamEntry], present: dict[str, set[str]]) -> dict[str, StreamEntry]:
        repaired = {}
        for name, entry in streams.items():
            rows = present.setdefault(name, set())
            shards = [new for ref in entry.shards if (new := self._shard(name, entry, ref, rows))]
            repaired[name] = entry.model_copy(update={"shards": tuple(shards)})
        return repaired

    def _shard(self, name: str, entry: StreamEntry, ref: ShardRef, present: set[str]) -> ShardRef | None:
        folder = stream_folder(entry.kind, name)
        index = self._index(folder, ref, entry)
        if index is None:
            self._done.unnamed.append((f"{folder}/{ref.name}", ref.videos + ref.failed))
            return None
        present |= {video.id for video in index.videos}
        self._known |= ids_of(index)
        if not any(path.startswith(f"{folder}/{ref.name}.") for path in self._broken):
            return ref
        files, scratch = dict(self._store.root.files), self._writer.scratch / "salvaged"
        result = DamagedShard(self._store.path, name, entry, ref, index, files, scratch).salvage()
        for file in result.files:
            self._in_place(file)
        if result.shard is None:
            return ref
        self._files += result.shard.files
        self._done.lost.setdefault(name, []).extend(result.lost)
        present -= set(result.lost)
        return result.shard.ref

    def _index(self, folder: str, ref: ShardRef, entry: StreamEntry) -> ShardIndex | None:
        """None where the index is lost, or speaks of files that the root does not name."""
        path = f"{folder}/{ref.name}.json"
        if path in self._broken or path not in self._store.root.files:
            return None
        index = read_shard_index(self._store.path / folder, ref.name, self._store.root.files[path])
        parts = {entry.container: True, "spans.npy": index.spans, "valid.npy": index.valid}
        named = (f"{folder}/{ref.name}.{suffix}" in self._store.root.files for suffix, used in parts.items() if used)
        return index if all(named) else None

    def _captions(self) -> tuple[CaptionRef, ...]:
        refs = []
        for ref in self._store.root.captions:
            paths = [f"captions/{ref.name}.{suffix}" for suffix in ("json", "jsonl.gz")]
            whole = [path in self._store.root.files and path not in self._broken for path in paths]
            new = ref if all(whole) else self._caption_shard(ref, *whole)
            refs += [new] if new else []
        return tuple(refs)

    def _caption_shard(self, ref: CaptionRef, index_whole: bool, text_whole: bool) -> CaptionRef | None:
        text = self._store.path / "captions" / f"{ref.name}.jsonl.gz"
        try:
            if index_whole:
                videos, lost = from_index(text, read_caption_index(self._store.path, ref.name))
                self._done.captions += lost
            elif text_whole:
                videos, buried = from_text(text, self._known)
                self._done.captions += [video.video_id for video in videos]
                self._done.buried += buried
            else:
                raise DamageFound(f"both files of captions {ref.name} are damaged")
        except DamageFound:
            self._done.caption_shards.append(ref.name)
            return None
        shard = write_caption_shard(self._writer.scratch, shard_number(ref.name), videos)
        self._files += shard.files
        return shard.ref

    def _run_records(self) -> None:
        """They are outside of the identity: one that cannot be mended is no loss to anybody's rows."""
        for damage in damaged_runs(self._store.path):
            path = self._store.path / damage.path
            try:
                found = read_file(path)
                data = None if path.is_symlink() else unflipped_seal(found)
            except NotAFileError:
                continue  # nothing of ours; it is told as left
            except OSError as error:
                if not is_damage(error):
                    raise unreadable(path, error) from None
                data = None
            if data is not None:
                replace_file(path, data)
                self._done.mended.append(damage.path)
            else:
                path.unlink()
                self._done.deleted.append(damage.path)
