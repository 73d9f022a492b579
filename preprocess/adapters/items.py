"""What an adapter says of a data set, row by row: videos, narration that comes by itself, and rows that are no use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from preprocess.adapters.media import MediaIndex
from preprocess.captions import plain_text

WHOLE, LONGEST = plain_text.WHOLE, plain_text.LONGEST

# What `Row.kind` says of a row, and of files and folders that cannot be looked at.
ROWS = "rows of the index"
ENTRIES = "entries of the folders that cannot be read"

# Longer than any recording; beyond it, a time is a mistake and would make a number of hundreds of digits.
_MOST_SECONDS = 1e7


@dataclass(frozen=True, slots=True)
class Row:
    """Where one row of the index as published stands: the file's name, and the place in it for people.

    kind: what it is counted as, in the plural.
    """

    file: str
    place: str
    kind: str = ROWS


@dataclass(frozen=True, slots=True)
class Text:
    """One caption: seconds on the media file's clock, and its text."""

    start: float
    end: float
    text: str


@dataclass(slots=True)
class Video:
    """One video of the index, and the published rows that it stands for.

    names: under which its media may be found, with or without an extension. folder: a folder on the way to it, where
    the index names one; it decides between files of one name. caption_path: captions that are a file already, from
    `Request.captions` or else from the media's folder. path: the media file itself, where the adapter knows it.
    """

    video_id: str
    rows: list[Row]
    names: tuple[str, ...]
    folder: str = ""
    split: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    captions: list[Text] = field(default_factory=list)
    caption_path: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Narration:
    """All captions of one video, where they come from another file than the index; before the video itself."""

    video_id: str
    row: Row
    names: tuple[str, ...]
    captions: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """A published row that cannot be used. reason: a fixed word, by which the summary counts."""

    row: Row
    video_id: str
    reason: str
    message: str


Item = Video | Narration | Fault


@dataclass(frozen=True)
class Request:
    """index: files (or folders) of the data set as published. captions, fold: None unless the user gave them.

    caption_files: what lies below `captions`, where that is a folder.
    """

    index: tuple[Path, ...]
    media: MediaIndex
    captions: Path | None
    fold: int | None
    caption_files: MediaIndex | None = None


@dataclass(frozen=True)
class Adapter:
    """about: the form it reads, in one line. example: what to type after `adapt`. columns: kept beside those of every
    manifest. kinds: extensions of its media. options: of `captions` and `fold`, those that it takes. advice: on the
    config for its captions. takes: what an index may be, of `file` and `folder`.
    """

    read: Callable[[Request], Iterator[Item]]
    about: str
    example: str
    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    options: frozenset[str] = frozenset()
    advice: str = ""
    takes: frozenset[str] = frozenset({"file"})


class Groups:
    """Videos in the order of their first row, for an index that has several rows a video."""

    def __init__(self) -> None:
        self._videos: dict[str, Video] = {}

    def get(self, video_id: str) -> Video | None:
        return self._videos.get(video_id)

    def add(self, video_id: str, row: Row, names: tuple[str, ...] | None = None) -> Video:
        """The video of this id, new or known, with one more row."""
        video = self._videos.get(video_id)
        if video is None:
            video = self._videos[video_id] = Video(video_id, [], names or (video_id,))
        video.rows.append(row)
        return video

    def __iter__(self) -> Iterator[Video]:
        return iter(self._videos.values())


def text_of(value: object) -> str:
    """The words of a text on one line; empty for what is no text, or is one that UTF-8 cannot hold."""
    return " ".join(value.split()) if isinstance(value, str) and encodable(value) else ""


def encodable(text: str) -> bool:
    """Whether UTF-8 can hold a text: a lone surrogate, or a byte that was not UTF-8, it cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def id_of(value: object) -> str:
    """An id as published, as text: indexes write some as numbers. Empty for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    return str(value)


def number_of(value: object) -> float | None:
    """A number that is one, or is written as one; None for all else, NaN and the like included."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or (isinstance(value, str) and "_" in value):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) <= _MOST_SECONDS else None


def timed_text(start: object, end: object, text: object) -> Text | str:
    """A caption, or what is wrong with it. Reversed and negative times stay: cleaning repairs and counts them."""
    begin, finish, words = number_of(start), number_of(end), text_of(text)
    if begin is None or finish is None:
        return f"times {_short(start)}, {_short(end)}: expected two numbers of seconds"
    if not words:
        return f"text {_short(text)}: expected words"
    if len(words) > LONGEST:
        return f"text of {len(words)} characters: expected at most {LONGEST}"
    return Text(begin, finish, words)


def _short(value: object) -> str:
    return repr(value)[:60]
