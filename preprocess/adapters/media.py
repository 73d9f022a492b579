"""Where the media of a data set lie: one walk through a folder, then every name is found without touching the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from shared.errors import InputFileError

# In the order in which they are taken where a name has several files.
VIDEO_KINDS = (
    *("mp4", "mkv", "webm", "avi", "mov", "m4v", "mpg", "mpeg", "ts", "m2ts", "mts", "flv", "wmv", "asf"),
    *("3gp", "3g2", "ogv", "ogg", "vob", "mxf", "rm", "ivf", "y4m", "nut"),
)
IMAGE_KINDS = ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "avif", "heic")
ANY_KINDS = VIDEO_KINDS + IMAGE_KINDS


class MediaIndex:
    """The media files below a folder, by name. Paths are relative to the folder, with `/`.

    A name that the file system holds in another encoding than UTF-8 cannot stand in a manifest and is left out. Memory:
    about 250 bytes a file. Raises InputFileError for a folder that cannot be read.
    """

    def __init__(self, root: Path, kinds: tuple[str, ...]) -> None:
        self.root = root
        self.several = 0
        self._rank = {kind: number for number, kind in enumerate(kinds)}
        self._paths: dict[str, str | list[str]] = {}
        for path in walk(root):
            stem, kind = split_name(path.rpartition("/")[2])
            if kind in self._rank:
                self._add(stem, path)

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


def walk(root: Path) -> Iterator[str]:
    """Regular files below a folder, sorted by name in each, as paths relative to it. A folder is entered only once.

    Raises InputFileError for a folder that cannot be read.
    """
    seen: set[tuple[int, int]] = set()
    pending = [""]
    while pending:
        prefix = pending.pop()
        folder = root / prefix
        try:
            status = folder.stat()
            with os.scandir(folder) as entries:
                here = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise InputFileError(
                f"folder {folder} cannot be read: {error.strerror}; expected one that holds the data set's files"
            ) from None
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        folders: list[str] = []
        for entry in here:
            if not _is_utf8(entry.name):
                continue
            if entry.is_dir():
                folders.append(f"{prefix}{entry.name}/")
            elif entry.is_file():
                yield f"{prefix}{entry.name}"
        pending.extend(reversed(folders))


def _is_utf8(name: str) -> bool:
    return not any("\udc80" <= character <= "\udcff" for character in name) if not name.isascii() else True
