"""What HMDB-51 and UCF-101 share: three train/test splits of the same clips, of which one is taken as `split`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from preprocess.adapters.items import Video
from shared.errors import RequestError

FOLDS = (1, 2, 3)
COLUMNS = ("label", "split1", "split2", "split3")

# Clips that a split leaves out must not be dealt into another by their id.
UNUSED = "unused"


def choose(fold: int | None, given: set[int]) -> int:
    """The fold that decides `split`. Raises RequestError for one that the index does not hold."""
    chosen = FOLDS[0] if fold is None else fold
    if chosen not in given:
        held = ", ".join(map(str, sorted(given)))
        raise RequestError(
            f"--fold {chosen}: the files given hold the folds {held}; give --fold one of these, or its files"
        )
    return chosen


def take_fold(videos: Iterator[Video], fold: int, given: set[int]) -> Iterator[Video]:
    """Videos with their `split`: what fold says, `unused` where it does not name the clip."""
    for video in videos:
        for number in sorted(given):
            video.attributes.setdefault(f"split{number}", UNUSED)
        video.split = video.attributes[f"split{fold}"]
        yield video


def index_files(index: tuple[Path, ...], pattern: str) -> list[Path]:
    """The files given, folders replaced by their files that match, sorted."""
    files: list[Path] = []
    for path in index:
        files += sorted(path.glob(pattern)) if path.is_dir() else [path]
    return files
