"""Where the media of a data set lie: one walk through a folder, then every name is found without touching the disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shared.errors import InputFileError

# In the order in which they are taken where a name has several files.
VIDEO_KINDS = (
    *("mp4", "mkv", "webm", "avi", "mov", "m4v", "mpg", "mpeg", "ts", "m2ts", "mts", "flv", "wmv", "asf"),
    *("3gp", "3g2", "ogv", "ogg", "vob", "mxf", "rm", "ivf", "y4m", "nut"),
)
IMAGE_KINDS = ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "avif", "heic")
ANY_KINDS = VIDEO_KINDS + IMAGE_KINDS


@dataclass(frozen=True, slots=True)
class Unread:
    """Something below a folder that cannot be used, and why. is_file: certainly no folder that holds others."""

    path: str
    message: str
    is_file: bool = False


class MediaIndex:
    """The media files below a folder, by name. Paths are relative to the folder, with `/`.

    unread: what could not be looked at, as far as it may be media, or a folder of them. Memory: about 250 bytes a file.
    Raises InputFileError for a folder that cannot be read.
    """

    def __init__(self, root: Path, kinds: tuple[str, ...]) -> None:
        self.root = root
        self._real_root = os.path.realpath(root)
        self.several = 0
        self._rank = {kind: number for number, kind in enumerate(kinds)}
        self._paths: dict[str, str | list[str]] = {}
        walk = Walk(root)
        for path in walk:
            stem, kind = split_name(path.rpartition("/")[2])
            if kind in self._rank:
                self._add(stem, path)
        self.unread = [entry for entry in walk.unread if not entry.is_file or self._known(entry.path)]
        self._has_links = walk.has_links

    def find(self, names: Iterable[str], folder: str = "") -> str | None:
        """The file of the first of the names that has one; a name may carry its extension, or another one.

        Of several files the one with the exact name is taken, then one in a folder called `folder`, then by the order
        of extensions and of paths; `several` counts how often there was such a choice.
        """
        for name in names:
            for stem in dict.fromkeys((split_name(name)[0] if self._known(name) else name, name)):
                found = self._paths.get(stem)
                if found is not None:
                    return found if isinstance(found, str) else self._choose(found, name, folder)
        return None

    def paths(self) -> list[str]:
        """All of them, sorted."""
        return sorted(path for found in self._paths.values() for path in ([found] if isinstance(found, str) else found))

    def real(self, path: str) -> str:
        """Where a file lies when links are followed, as an absolute path."""
        # One look at the file system for each file, which the tree without links need not pay.
        return os.path.realpath(self.root / path) if self._has_links else f"{self._real_root}/{path}"

    def _known(self, name: str) -> bool:
        return split_name(name)[1] in self._rank

    def _add(self, stem: str, path: str) -> None:
        found = self._paths.get(stem)
        if found is None:
            self._paths[stem] = path
        elif isinstance(found, str):
            self._paths[stem] = [found, path]
        else:
            found.append(path)

    def _choose(self, paths: list[str], name: str, folder: str) -> str:
        self.several += 1
        return min(paths, key=lambda path: self._preference(path, name, folder))

    def _preference(self, path: str, name: str, folder: str) -> tuple[bool, bool, int, str]:
        parent, _, file = path.rpartition("/")
        elsewhere = bool(folder) and f"/{folder}/" not in f"/{parent}/"
        return file != name, elsewhere, self._rank[split_name(file)[1]], path


def split_name(name: str) -> tuple[str, str]:
    """A file's name without its extension, and the extension in lower case, without the dot."""
    stem, dot, kind = name.rpartition(".")
    return (stem, kind.lower()) if dot and stem else (name, "")


class Walk:
    """Regular files below a folder, sorted by name in each, as paths relative to it. A folder is entered only once.

    To be iterated once; then unread: what could not be used, and has_links: whether anything below is a link.
    Iterating raises InputFileError where the folder itself cannot be read.
    """

    def __init__(self, root: Path) -> None:
        self.unread: list[Unread] = []
        self.has_links = False
        self._root = root
        self._seen: set[tuple[int, int]] = set()

    def __iter__(self) -> Iterator[str]:
        pending = [""]
        while pending:
            prefix = pending.pop()
            folders: list[str] = []
            for entry in self._enter(prefix):
                self.has_links |= entry.is_symlink()
                kind = self._kind(entry, prefix)
                if kind == "folder":
                    folders.append(f"{prefix}{entry.name}/")
                elif kind == "file":
                    yield f"{prefix}{entry.name}"
            pending.extend(reversed(folders))

    def _enter(self, prefix: str) -> list[os.DirEntry[str]]:
        folder = self._root / prefix
        try:
            status = folder.stat()
            with os.scandir(folder) as entries:
                here = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            if not prefix:
                raise InputFileError(
                    f"folder {folder} cannot be read: {error.strerror}; expected one that holds the data set's files"
                ) from None
            self.unread.append(Unread(prefix, f"the folder cannot be read: {error.strerror}"))
            return []
        key = status.st_dev, status.st_ino
        if key in self._seen:
            return []
        self._seen.add(key)
        return here

    def _kind(self, entry: os.DirEntry[str], prefix: str) -> str:
        """`file`, `folder`, or nothing for what is noted as unread."""
        path = prefix + entry.name
        try:
            # `entry.stat` and not `is_file`, which takes a link to nothing for no file without a word.
            mode = entry.stat().st_mode if entry.is_symlink() else None
            is_folder = entry.is_dir() if mode is None else stat.S_ISDIR(mode)
            is_file = entry.is_file() if mode is None else stat.S_ISREG(mode)
        except OSError as error:
            self.unread.append(Unread(path, f"cannot be looked at: {error.strerror}"))
            return ""
        if not _is_utf8(entry.name):
            self.unread.append(Unread(path, "its name is not UTF-8 and cannot stand in a manifest", not is_folder))
            return ""
        if not is_folder and not is_file:
            self.unread.append(Unread(path, "is neither a file nor a folder", True))
        return "folder" if is_folder else "file" if is_file else ""


def _is_utf8(name: str) -> bool:
    return not any("\udc80" <= character <= "\udcff" for character in name) if not name.isascii() else True
