"""Finding damage: every file against the root, and what the files say against each other."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shared.captions import read_caption_shard
from shared.checks import bad_blocks, check_file
from shared.containers import map_array, map_rows
from shared.errors import DamageFound, StoreError
from shared.features import StreamReader
from shared.fingerprint import is_sealed
from shared.index_cache import damaged_indexes
from shared.manifest_set import ManifestSet
from shared.manifest_writer import CAPTION_COLUMNS
from shared.row_values import bad_row
from shared.schema import EMBEDDINGS, TWINS, Root, ShardIndex, StreamEntry, stream_folder
from shared.store import ROOT, Store, list_files, open_store
from shared.store_files import read_file, state_of, unreadable
from shared.stream_index import read_shard_index

_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong: the file (relative to the store) and what is wrong with it."""

    path: str
    what: str


def verify_store(path: Path, progress: Callable[[str], None] = lambda _: None) -> list[Damage]:
    """Every damage that can be found, in the order of checking; empty for a whole store.

    Covers changed bits of any file, truncation, missing and orphan files, checksums, twins that disagree.
    `progress` is called with each file before it is read.
    Raises StoreError when `path` is no store, or one of another version.
    """
    try:
        store = open_store(path)
    except DamageFound as error:
        # Without a root nothing can be checked against it; what it would have said of the rest is unknown.
        return [Damage(ROOT, str(error)), *damaged_runs(path), *_damaged_indexes(path)]
    # Before anything is opened that could compile them again.
    indexes = _damaged_indexes(path)
    found = [*_damaged_files(store, progress), *_orphans(store)]
    found += _disagreements(store, {damage.path for damage in found}, progress)
    return [*found, *damaged_runs(path), *indexes]


def _damaged_indexes(store: Path) -> list[Damage]:
    """Caches are no part of the store, but a damaged one is a sign of a disk that damages other files, too."""
    return [Damage(path, what) for path, what in damaged_indexes(store)]


def _damaged_files(store: Store, progress: Callable[[str], None]) -> Iterator[Damage]:
    for name, entry in store.root.files.items():
        progress(name)
        try:
            what = check_file(store.path / name, entry)
        except StoreError as error:  # not known to be damaged, and not known to be whole
            what = str(error).removeprefix(f"{store.path / name} ")
        if what:
            yield Damage(name, what)


def _orphans(store: Store) -> list[Damage]:
    refused: list[OSError] = []
    extra = [path for path in list_files(store.path, refused.append) if path not in store.root.files]
    return [
        Damage(path, "orphan: the root does not name it (the next run removes what a killed run left)")
        for path in extra
    ] + [_unread(store.path, error) for error in refused if not isinstance(error, FileNotFoundError)]


def _unread(store: Path, error: OSError) -> Damage:
    """A folder that could not be looked into (one that is gone was emptied by a writer meanwhile)."""
    folder = Path(error.filename)
    return Damage(folder.relative_to(store).as_posix(), str(unreadable(folder, error)).removeprefix(f"{folder} "))


def _disagreements(store: Store, broken: set[str], progress: Callable[[str], None]) -> Iterator[Damage]:
    """What a matching hash cannot show: files that are each whole but do not fit each other.

    Shards and sets with a broken file are left out: what else they say cannot be trusted.
    """
    yield from _unnamed(store.root)
    whole_streams = set()
    for streams in (store.root.streams, store.root.pending):
        for name, stream in streams.items():
            whole = [
                ref
                for ref in stream.shards
                if not _any_below(broken, f"{stream_folder(stream.kind, name)}/{ref.name}.")
            ]
            found = list(
                _stream_disagreements(store.path, name, stream.model_copy(update={"shards": tuple(whole)}), progress)
            )
            yield from found
            if not found and len(whole) == len(stream.shards) and streams is store.root.streams:
                whole_streams.add(name)
    for caption_ref in store.root.captions:
        if not _any_below(broken, f"captions/{caption_ref.name}."):
            yield from _caption_disagreements(store.path, caption_ref.name)
    for name, entry in store.root.sets.items():
        progress(entry.path)
        if _any_below(broken, f"{entry.path}/"):
            continue
        try:
            yield from _set_disagreements(store, ManifestSet(store.path, entry.path), whole_streams)
        except DamageFound as error:
            yield Damage(entry.path, f"set {name!r}: {error}")


def _any_below(paths: set[str], prefix: str) -> bool:
    return any(path.startswith(prefix) for path in paths)


def _caption_disagreements(store: Path, name: str) -> Iterator[Damage]:
    try:
        for _ in read_caption_shard(store, name):
            pass
    except DamageFound as error:
        yield Damage(f"captions/{name}.jsonl.gz", str(error))


def _unnamed(root: Root) -> Iterator[Damage]:
    """Files that shards and sets imply but the root does not list: nothing would check them."""
    for streams in (root.streams, root.pending):
        for name, stream in streams.items():
            folder = stream_folder(stream.kind, name)
            for ref in stream.shards:
                for suffix in (stream.container, "json"):
                    if f"{folder}/{ref.name}.{suffix}" not in root.files:
                        yield Damage(ROOT, f"names shard {ref.name} of {name!r} but not its file .{suffix}")
    for caption_ref in root.captions:
        for suffix in ("json", "jsonl.gz"):
            if f"captions/{caption_ref.name}.{suffix}" not in root.files:
                yield Damage(ROOT, f"names captions {caption_ref.name} but not their file .{suffix}")
    for name, entry in root.sets.items():
        for file in ("manifest.json", *TWINS):
            if f"{entry.path}/{file}" not in root.files:
                yield Damage(ROOT, f"names set {name!r} but not its file {file}")


def _stream_disagreements(
    store: Path, name: str, entry: StreamEntry, progress: Callable[[str], None]
) -> Iterator[Damage]:
    folder = store / stream_folder(entry.kind, name)
    seen: dict[str, str] = {}
    for ref in entry.shards:
        path = f"{stream_folder(entry.kind, name)}/{ref.name}"
        progress(path)
        try:
            index = read_shard_index(folder, ref.name)
            rows_path = folder / f"{ref.name}.{index.container}"
            rows = map_rows(index.container, rows_path, (index.rows, *index.row_shape), index.dtype)
        except (DamageFound, StoreError) as error:
            yield Damage(f"{path}.{entry.container}", str(error))
            continue
        if index.fingerprint != entry.fingerprint or index.unit != ref.unit:
            yield Damage(f"{path}.json", "belongs to another configuration or unit than the root says")
        if (index.rows, len(index.videos), len(index.failed)) != (ref.rows, ref.videos, ref.failed):
            yield Damage(f"{path}.json", "counts other rows or videos than the root says")
        bad = bad_blocks(rows, index.checksums, list(range(-(-len(rows) // index.checksums.block_rows))))
        if bad:
            yield Damage(f"{path}.{index.container}", f"block checksums differ in blocks {bad}")
        elif entry.kind == "features":
            yield from _bad_rows(rows, index, f"{path}.{index.container}")
        yield from _side_disagreements(folder / ref.name, path, index)
        for video_id in [video.id for video in index.videos] + [record.id for record in index.failed]:
            if video_id in seen:
                yield Damage(f"{path}.json", f"video {video_id!r} is in shard {seen[video_id]} too")
            seen[video_id] = ref.name


def _bad_rows(rows: np.ndarray, index: ShardIndex, path: str) -> Iterator[Damage]:
    """The first feature row that is not finite or zero everywhere: another program wrote it."""
    for first in range(0, len(rows), index.checksums.block_rows):
        found = bad_row(rows[first : first + index.checksums.block_rows])
        if found:
            row, what = first + found[0], found[1]
            owner = next(video.id for video in index.videos if video.first_row <= row < video.first_row + video.rows)
            yield Damage(path, f"row {row}, of video {owner!r}, is {what}")
            return


def _side_disagreements(base: Path, path: str, index: ShardIndex) -> Iterator[Damage]:
    for present, suffix, dtype, shape in (
        (index.spans, ".spans.npy", np.dtype(np.float64), (index.rows, 2)),
        (index.valid, ".valid.npy", np.dtype(np.int32), (index.rows,)),
    ):
        if present:
            try:
                map_array(base.with_name(base.name + suffix), dtype, shape)
            except DamageFound as error:
                yield Damage(f"{path}{suffix}", str(error))


def _set_disagreements(store: Store, manifest: ManifestSet, whole_streams: set[str]) -> Iterator[Damage]:
    folder = manifest.path.relative_to(store.path).as_posix()
    yield from _twin_disagreements(manifest, folder)
    yield from _embedding_disagreements(manifest, folder)
    yield from _part_disagreements(manifest, folder)
    info = manifest.info
    entry = store.root.streams.get(info.stream)
    if entry is None or entry.fingerprint != info.stream_fingerprint:
        return  # cut for an older stream: `Store.manifest_set` refuses it with the remedy, it is not damage
    if info.stream not in whole_streams:
        return
    yield from _window_disagreements(manifest, store.stream(info.stream), folder)


def _twin_disagreements(manifest: ManifestSet, folder: str) -> Iterator[Damage]:
    number = 0
    for number, row in enumerate(manifest.rows("captions", CAPTION_COLUMNS), start=1):
        if number > manifest.info.captions:
            break
        if row["token_ids"] != " ".join(map(str, manifest.caption_tokens(number - 1).tolist())):
            yield Damage(f"{folder}/tokens.npy", f"caption {number - 1} has other token ids than captions.csv")
            return
    if not 0 == manifest.token_offsets[0] <= manifest.token_offsets[-1] == manifest.info.tokens:
        yield Damage(f"{folder}/offsets.npy", "does not begin at 0 and end at the number of tokens")
    if number != manifest.info.captions:
        yield Damage(
            f"{folder}/captions.csv", f"holds {number} captions or more, manifest.json says {manifest.info.captions}"
        )


def _embedding_disagreements(manifest: ManifestSet, folder: str) -> Iterator[Damage]:
    if manifest.info.embeddings is not None:
        try:
            embeddings_CD = manifest.embeddings
        except DamageFound as error:
            yield Damage(f"{folder}/{EMBEDDINGS}", str(error))
            return
        for first in range(0, len(embeddings_CD), _ROWS_AT_ONCE):
            if not np.isfinite(embeddings_CD[first : first + _ROWS_AT_ONCE]).all():
                yield Damage(f"{folder}/{EMBEDDINGS}", "holds numbers that are not finite")
                return


def _part_disagreements(manifest: ManifestSet, folder: str) -> Iterator[Damage]:
    for file, rows in manifest.info.parts.items():
        with (manifest.path / file).open(encoding="utf-8", newline="") as lines:
            found = sum(1 for _ in csv.reader(lines)) - 1
        if found != rows:
            yield Damage(f"{folder}/{file}", f"holds {found} rows, manifest.json says {rows}")
    for split, windows in manifest.info.splits.items():
        found = sum(manifest.info.parts[file] for file in manifest.info.part_files(f"windows-{split}"))
        if found != windows:
            yield Damage(
                f"{folder}/manifest.json", f"says {windows} windows of split {split!r}, its parts hold {found}"
            )


def _window_disagreements(manifest: ManifestSet, stream: StreamReader, folder: str) -> Iterator[Damage]:
    ids = manifest.video_ids
    if len(set(ids)) != len(ids):
        yield Damage(f"{folder}/videos.csv", "names a video twice")
        return
    number_V = stream.index_of(ids)
    # One more entry, which -1 picks: a video that the stream does not have has no rows.
    rows_V = np.append(stream.rows_per_video, 0)[number_V]
    for split in manifest.splits:
        windows = manifest.windows(split)
        ends_W = windows.first_row_W + windows.rows_W
        if ((ends_W > rows_V[windows.video_W]) | (windows.first_row_W < 0) | (windows.rows_W < 1)).any():
            yield Damage(
                f"{folder}/windows-{split}.csv", "a window has rows that its video does not have: make the set again"
            )
        if (
            len(windows.candidates)
            and not 0 <= windows.candidates.min() <= windows.candidates.max() < manifest.info.captions
        ):
            yield Damage(f"{folder}/windows-{split}.csv", "a window has a caption that the set does not have")


def damaged_runs(store: Path) -> list[Damage]:
    """Run records are outside the store's identity, but each carries its own digest."""
    checked = ((path, _record_damage(path)) for path in sorted((store / "runs").glob("*.json")))
    return [Damage(path.relative_to(store).as_posix(), what) for path, what in checked if what]


def _record_damage(path: Path) -> str | None:
    try:
        data = read_file(path)
        content = json.loads(data)
    except OSError as error:
        return f"run record: {state_of(error)}"
    except ValueError:
        content = None
    sealed = isinstance(content, dict) and is_sealed(content, data)
    return None if sealed else "run record does not match its own digest"
