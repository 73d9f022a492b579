"""Where captions of a video are found: in its own file, in one JSON file for all videos, in a stream of the media."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pydantic import field_validator, model_validator

from preprocess.captions.json_file import json_entries
from preprocess.captions.languages import primary_language
from preprocess.inputs import InputVideo, not_there
from shared.atomic import disk_full_stops
from shared.captions import KeptTrack
from shared.config import Config
from shared.errors import Failure, InputFileError
from shared.fingerprint import fingerprint
from shared.schema import InputRecord, Source

MAX_CAPTION_BYTES = 64 * 2**20


class CaptionsConfig(Config):
    """Where captions are for videos whose row in the input manifest names no caption file.

    json_file: one file for all videos, `{video_id: {"start", "end", "text"}}`, as HowTo100M's `caption.json`.
    embedded: whether to look for subtitle streams in the media file of a video that has no entry there.
    language, title: which of several streams; the first by default. language: of ISO 639 or BCP 47 (de, deu, de-AT).
    """

    json_file: Path | None = None
    embedded: bool = False
    language: str | None = None
    title: str | None = None

    @model_validator(mode="after")
    def _choice_of_streams(self) -> CaptionsConfig:
        if not self.embedded and (self.language is not None or self.title is not None):
            raise ValueError("captions.language and captions.title choose among embedded streams: set embedded: true")
        return self

    @field_validator("language")
    @classmethod
    def _language_is_a_tag(cls, language: str | None) -> str | None:
        if language is not None and primary_language(language) is None:
            raise ValueError(f"captions.language {language!r} is no language tag; expected one like de, deu or de-AT")
        return language


Found = KeptTrack | Failure | None


class CaptionReader:
    """`read(video)`: its captions as found, why they cannot be read, or None. Use `caption_reader`."""

    def __init__(
        self,
        config: CaptionsConfig,
        entries: dict[str, tuple[int, int] | None],
        spool: BinaryIO | None,
        source_of: Callable[[Path], Source | None],
    ) -> None:
        """entries: where each video's JSON stands in `spool`, as (offset, bytes); None for one that is too large."""
        self._config, self._entries, self._spool, self._source_of = config, entries, spool, source_of

    def read(self, video: InputVideo) -> Found:
        if video.caption_failure is not None:
            return video.caption_failure
        if video.caption_path is not None:
            return _read_file(video.caption_path, video.caption_given)
        if video.video_id in self._entries:
            return self._entry(video.video_id)
        return self._embedded(video) if self._config.embedded else None

    def is_kept(self, video: InputVideo, record: InputRecord) -> bool:
        """Whether the store has the embedded stream of this very media file: it is not read out again."""
        asked = self._config.embedded and video.caption_path is None and video.caption_failure is None
        if not asked or video.video_id in self._entries or video.failure is not None or len(record.tracks) != 1:
            return False
        return record.tracks[0].name.endswith(f".{self._identity(video.video_path)}.json")

    def _entry(self, video_id: str) -> KeptTrack | Failure:
        assert self._spool is not None
        assert self._config.json_file is not None
        name = self._config.json_file.name
        place = self._entries[video_id]
        if place is None:
            return _too_large(f"the entry {video_id!r} of {name}")
        self._spool.seek(place[0])
        return KeptTrack(name, self._spool.read(place[1]))

    def _embedded(self, video: InputVideo) -> Found:
        from preprocess.captions.embedded import embedded_track  # PyAV: only where it is asked for

        if video.failure is not None:
            return Failure(video.failure.reason, "captions", video.failure.message)
        identity = self._identity(video.video_path)
        found = embedded_track(video.video_path, self._config.language, self._config.title, identity)
        if isinstance(found, KeptTrack) and len(found.data) > MAX_CAPTION_BYTES:
            return _too_large(f"the subtitle stream of {video.video_path.name}")
        return found

    def _identity(self, path: Path) -> str:
        source = self._source_of(path)
        content = source.xxh3 if source else ""
        return fingerprint([content, self._config.language, self._config.title])[:12]


@contextmanager
def caption_reader(
    config: CaptionsConfig,
    inputs: Sequence[InputVideo],
    scratch: Path,
    source_of: Callable[[Path], Source | None],
) -> Iterator[CaptionReader]:
    """Reads the JSON file once, in its own order, and keeps what the inputs need of it in a file of scratch.

    Memory holds a place for each video and one entry at a time. Raises InputFileError for a file that is not whole
    JSON, or has an entry twice.
    """
    if config.json_file is None:
        yield CaptionReader(config, {}, None, source_of)
        return
    wanted = {v.video_id for v in inputs if v.caption_path is None and v.caption_failure is None}
    scratch.mkdir(parents=True, exist_ok=True)
    path = scratch / "captions.spool"
    with path.open("w+b") as spool:
        yield CaptionReader(config, _spooled(config.json_file, wanted, spool, path), spool, source_of)
    path.unlink()


def _spooled(json_file: Path, wanted: set[str], spool: BinaryIO, path: Path) -> dict[str, tuple[int, int] | None]:
    entries: dict[str, tuple[int, int] | None] = {}
    at = 0
    for video_id, data in json_entries(json_file, MAX_CAPTION_BYTES):
        if video_id not in wanted:
            continue
        if video_id in entries:
            raise InputFileError(f"captions.json_file {json_file} has two entries {video_id!r}: keep one of them")
        entries[video_id] = None if data is None else (at, len(data))
        with disk_full_stops(path):
            at += spool.write(data or b"")
    return entries


def _read_file(path: Path, given: str) -> KeptTrack | Failure:
    """given: the path as the manifest has it."""
    try:
        data = _read_bytes(path)
    except OSError as error:
        reason = "missing_file" if isinstance(error, FileNotFoundError) else "unreadable"
        return Failure(reason, "captions", not_there(given or path.name, f"cannot be read: {error.strerror}"))
    return _too_large(path.name) if data is None else KeptTrack(path.name, data)


def _read_bytes(path: Path) -> bytes | None:
    if not path.is_file() and path.exists():
        raise OSError(errno.EINVAL, "not a regular file")  # opening a pipe would wait for ever
    with path.open("rb") as file:
        data = file.read(MAX_CAPTION_BYTES + 1)
    return data if len(data) <= MAX_CAPTION_BYTES else None


def _too_large(what: str) -> Failure:
    return Failure("too_large", "captions", f"{what} is larger than {MAX_CAPTION_BYTES} bytes")
