"""Opening a store, and changing it: one root that is replaced, files that are written once, one writer at a time."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shared.atomic import disk_full_stops, fsync_directory, make_directory, replace_file
from shared.checks import FileChecks
from shared.errors import DamageFound, RequestError, StoreError
from shared.explain import first_fault
from shared.features import StreamReader, Verify
from shared.fingerprint import is_sealed
from shared.index_cache import drop_indexes
from shared.lease import writer_lease
from shared.manifest_set import ManifestSet
from shared.row_sources import Mapping
from shared.schema import FORMAT, VERSIONS, ManifestInfo, Root, SetEntry, stream_folder, version_of
from shared.shard_writer import FinishedFile
from shared.store_files import read_file, unreadable

ROOT = "store.json"
SCRATCH = ".tmp"
# What a killed run can have left: only names that clipmill gives, so that a stranger's file is reported and kept.
_OURS = re.compile(
    r"(features|frames)/[^/]+/\d{5,}-[0-9a-f]{12}\.(npy|h5|json|spans\.npy|valid\.npy)"
    r"|captions/\d{5,}-[0-9a-f]{12}\.(json|jsonl\.gz)"
    r"|manifests/[^/]+-[0-9a-f]{12}/(manifest\.json|[a-z]+(-[\w-]+)?(\.\d{5,})?\.csv|(tokens|offsets|embeddings)\.npy)"
)
MANAGED = ("features", "frames", "captions", "manifests")


class Store:
    """A store as its root was when it was opened."""

    def __init__(self, path: Path, root: Root) -> None:
        self.path, self.root = path, root
        self._files = FileChecks(path, root.files)

    def stream(self, name: str, *, verify: Verify = "first", mapping: Mapping = "auto") -> StreamReader:
        """The rows of one stream. Raises StoreError naming those that exist, DamageFound for a damaged index.

        verify: `first` checks each block of rows when it is read for the first time, `always` each time, `never` trusts
        the disk. mapping: `auto` maps files where that is safe, else reads them (`pread`); `mmap` is twice as fast and
        not as safe (see `shared.row_sources`).
        """
        if name not in self.root.streams:
            raise StoreError(f"store {self.path} has no stream {name!r}; it has {_names(self.root.streams)}")
        return StreamReader(
            self.path, name, self.root.streams[name], self.root.files, verify=verify, mapping=mapping, cached=True
        )

    def manifest_set(self, name: str) -> ManifestSet:
        """One manifest set, whose files are checked against the root when they are first read.

        Raises StoreError when absent, or cut for a stream that has changed since, DamageFound for a damaged manifest.
        """
        if name not in self.root.sets:
            raise StoreError(f"store {self.path} has no manifest set {name!r}; it has {_names(self.root.sets)}")
        entry = self.root.sets[name]
        if name in outdated_sets(self.root):
            raise StoreError(
                f"set {name!r} of {self.path} was cut for another version of stream {entry.stream!r}: "
                "make it again with `python -m preprocess manifests CONFIG`"
            )
        return ManifestSet(self.path, entry.path, self._files)


def open_store(path: Path | str) -> Store:
    """Open a store for reading.

    Raises StoreError when there is none or its version is unknown, DamageFound when the root is damaged.
    """
    path = Path(path)
    try:
        data = read_file(path / ROOT)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(
            f"{path} is no store: it has no {ROOT}; make one with `python -m preprocess run CONFIG`"
        ) from None
    except OSError as error:
        raise StoreError(
            f"{path / ROOT} cannot be read: {error.strerror}; expected a file that this user may read"
        ) from None
    return Store(path, parse_root(data, path / ROOT))


def parse_root(data: bytes, where: Path) -> Root:
    """`store.json` checked for format, version, schema and digest. Raises StoreError or DamageFound."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamageFound(f"{where} is not JSON: {error}") from None
    if not isinstance(content, dict) or not is_sealed(content, data):
        raise DamageFound(f"{where} does not match its own digest: it was changed or damaged")
    if content.get("format") != FORMAT or content.get("version") not in VERSIONS:
        raise StoreError(
            f"{where} has format {content.get('format')!r} version {content.get('version')!r}, "
            f"this clipmill reads {FORMAT!r} version {' or '.join(map(str, VERSIONS))}: use the matching release"
        )
    try:
        return Root.model_validate({key: value for key, value in content.items() if key != "digest"})
    except ValidationError as error:
        raise DamageFound(f"{where} is not a root of version {content['version']}: {first_fault(error)}") from None


class StoreWriter:
    """The one process that may change a store. Use `open_writer`."""

    def __init__(self, path: Path, root: Root) -> None:
        self.path, self.root = path, root
        self.scratch = path / SCRATCH

    @property
    def store(self) -> Store:
        """The store as of the last commit."""
        return Store(self.path, self.root)

    def commit(self, files: Sequence[FinishedFile], **changes: Any) -> None:
        """Move finished files into the store and replace the root by one with `changes`.

        Readers see the store before or after, never between. Files that the new root no longer needs are deleted last.
        Shards are put in the order of their names, so that the root does not tell in which order units were done.
        """
        root = in_order(self.root.model_copy(update=changes))
        entries = self.root.files | {file.path: file.entry for file in files}
        needed = _referenced_stems(root)
        kept = {path: entry for path, entry in sorted(entries.items()) if _stem(path) in needed}
        version = version_of(kept)
        root = Root.model_validate(root.model_copy(update={"files": kept, "version": version}).model_dump())
        self._move(files)
        replace_file(self.path / ROOT, root.to_bytes())
        self.root = root
        drop_indexes(self.path)
        for path in sorted(entries.keys() - kept.keys()):
            (self.path / path).unlink(missing_ok=True)
        self.drop_empty_folders()

    def commit_set(self, info: ManifestInfo, files: Sequence[FinishedFile]) -> None:
        """Add or replace a manifest set."""
        self.commit(files, sets=self.root.sets | {info.name: set_entry(info)})

    def remove_leftovers(self) -> list[str]:
        """Delete what a killed run left: its scratch files, and files it had moved before the root named them."""
        removed = [path for path in list_files(self.path) if path not in self.root.files and _OURS.fullmatch(path)]
        for path in removed:
            (self.path / path).unlink()
        self.remove_scratch()
        self.drop_empty_folders()
        return removed

    def remove_scratch(self) -> None:
        """Delete unfinished work: the lease is ours, so nobody is doing it any more."""
        (self.path / f".{ROOT}.tmp").unlink(missing_ok=True)
        if self.scratch.exists():
            shutil.rmtree(self.scratch)

    def _move(self, files: Sequence[FinishedFile]) -> None:
        """Rename, then fsync each folder once, those above too: a killed run may have made them and got no further."""
        folders = set()
        for file in files:
            target = self.path / file.path
            with disk_full_stops(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                file.scratch.replace(target)
            folders |= {folder for folder in target.parents if folder.is_relative_to(self.path)}
        for folder in sorted(folders, reverse=True):
            with disk_full_stops(folder):
                fsync_directory(folder)

    def drop_empty_folders(self) -> None:
        """Remove folders in which nothing is left."""
        for top in MANAGED:
            for folder in sorted((self.path / top).glob("**/"), reverse=True):
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()


@contextmanager
def open_writer(path: Path | str) -> Iterator[StoreWriter]:
    """Hold a store's lease and change it; makes an empty store where there is none.

    Raises StoreError when another process is writing, or when `path` is a folder with other things in it: also with the
    files of a store that has lost its root, which a new root would orphan.
    """
    path = Path(path)
    try:
        make_directory(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be a store: {error.strerror}; give an empty or new folder") from None
    with writer_lease(path):
        if not (path / ROOT).exists():
            strangers = sorted(
                p.name for p in path.iterdir() if p.name not in {".lease", SCRATCH, ".cache", f".{ROOT}.tmp"}
            )
            if strangers:
                raise StoreError(
                    f"{path} is no store and not empty (it holds {strangers[0]!r}): give an empty or new folder"
                )
            replace_file(path / ROOT, Root().to_bytes())
        writer = StoreWriter(path, open_store(path).root)
        writer.remove_scratch()
        yield writer
        writer.remove_scratch()


def set_entry(info: ManifestInfo) -> SetEntry:
    """What the root says of a manifest set."""
    return SetEntry(
        path=info.folder,
        fingerprint=info.fingerprint,
        stream=info.stream,
        stream_fingerprint=info.stream_fingerprint,
        splits=info.splits,
    )


def outdated_sets(root: Root) -> list[str]:
    """The sets that were cut for another version of their stream, sorted: nothing can be read of them."""
    streams = {name: entry.fingerprint for name, entry in root.streams.items()}
    return sorted(n for n, entry in root.sets.items() if streams.get(entry.stream) != entry.stream_fingerprint)


def refuse_inside_store(path: Path, what: str) -> None:
    """Raise RequestError when `path`, which need not exist, is a store or lies in one: `what` would be an orphan there.

    what: what is to be written, and how to say where, as in "the run folder (run=PATH)".
    """
    resolved = Path(os.path.realpath(path))
    for folder in (resolved, *resolved.parents):
        if os.path.isfile(folder / ROOT):  # noqa: PTH113  (a name that is too long is no file; is_file raises)
            raise RequestError(
                f"{path} is inside the store {folder}, which answers for every file in it and would delete or report "
                f"others; put {what} somewhere else"
            )


def list_files(path: Path, refused: Callable[[OSError], None] | None = None) -> list[str]:
    """Every file in the folders that the root answers for, relative to the store, sorted; links are files, too.

    refused: is told of each folder that cannot be read. Default: StoreError or DamageFound for the first.
    """

    def tell(error: OSError) -> None:
        if refused is None:
            raise unreadable(Path(error.filename), error) from None
        refused(error)

    found = []
    for top in (path / name for name in MANAGED):
        # A file in the place of a folder is one that the root does not name.
        if os.path.lexists(top) and not top.is_dir():
            found.append(top)
        elif os.path.lexists(top):
            for folder, folders, files in os.walk(top, onerror=tell):
                found += [Path(folder) / name for name in files]
                found += [link for name in folders if (link := Path(folder) / name).is_symlink()]
    return sorted(file.relative_to(path).as_posix() for file in found)


def in_order(root: Root) -> Root:
    """The same root with the shards of every stream, and those of the captions, sorted by name."""
    streams = {
        field: {
            name: entry.model_copy(update={"shards": tuple(sorted(entry.shards, key=lambda ref: ref.name))})
            for name, entry in entries.items()
        }
        for field, entries in (("streams", root.streams), ("pending", root.pending))
    }
    captions = tuple(sorted(root.captions, key=lambda ref: ref.name))
    return root.model_copy(update={**streams, "captions": captions})


def stands_on(root: Root, path: str) -> bool:
    """Whether a file, relative to the store, is of a shard or set that the root has."""
    return path == ROOT or _stem(path) in _referenced_stems(root)


def _referenced_stems(root: Root) -> set[str]:
    """What the streams, captions and sets of a root stand on: shards without their extensions, folders of sets."""
    shards = {
        f"{stream_folder(entry.kind, name)}/{ref.name}"
        for streams in (root.streams, root.pending)
        for name, entry in streams.items()
        for ref in entry.shards
    }
    return shards | {f"captions/{ref.name}" for ref in root.captions} | {entry.path for entry in root.sets.values()}


def _stem(path: str) -> str:
    folder, _, file = path.rpartition("/")
    return folder if folder.startswith("manifests/") else f"{folder}/{file.partition('.')[0]}"


def _names(items: dict[str, Any]) -> str:
    return ", ".join(sorted(items)) or "none"
