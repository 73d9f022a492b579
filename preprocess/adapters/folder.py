"""A plain folder: media, and caption files of the same name beside them.

`NAME.mp4` (or another extension) with `NAME.vtt`, `NAME.srt`, `NAME.csv` (`start,end,text`), `NAME.json` (an object
with lists of these names) or `NAME.txt` (one text for the whole file, as img2dataset writes it), or with a language in
between, `NAME.en.vtt`; of several, the first of these in this order, English before other languages. Folders inside are
looked through, and the path without its extension is the id. A first folder named `train`, `val`, `test` (or as data
sets write these) gives the split. Other files of the same name are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from preprocess.adapters.items import LONGEST, Fault, Item, Request, Row, Video
from preprocess.adapters.media import ANY_KINDS, Walk, split_name
from preprocess.adapters.tables import SPLITS, header
from preprocess.caption_reader import MAX_CAPTION_BYTES
from preprocess.captions.csv_track import has_header
from preprocess.captions.read import decode_text, read_track
from shared.errors import Failure, RequestError

# Those of read_track. Files of the last three have other uses as well: they are captions if their content says so.
_CAPTIONS = ("vtt", "srt", "csv", "json", "txt")
_ALWAYS = ("vtt", "srt")
# Listed where no media has their name, if their content says that they are captions. Not CSV, which manifests are, too.
_ALONE = ("json", "txt")
_LANGUAGE = re.compile(r"(.+)\.([A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,10})*)")
_MEDIA, _CAPTION, _OTHER = "media files", "caption files", "other files of the same names"


def read(request: Request) -> Iterator[Item]:
    root = request.media.root
    if len(request.index) != 1 or not request.index[0].samefile(root):
        raise RequestError("adapt folder takes one folder, and no --media: media and captions lie in it together")
    media = sorted(request.media.paths(), key=lambda path: (split_name(path)[0], ANY_KINDS.index(split_name(path)[1])))
    captions, others = _beside(root, {split_name(path)[0] for path in media})
    for path in media:
        video_id = split_name(path)[0]
        top = path.partition("/")[0].lower() if "/" in path else ""
        video = Video(video_id, [Row(path, "file", _MEDIA)], (path,), split=SPLITS.get(top, ""), path=path)
        yield from _take_captions(root, video, captions.pop(video_id, []))
        yield video
    for paths in captions.values():
        for path in paths:
            row = Row(path, "file", _CAPTION)
            yield Fault(row, split_name(path)[0], "missing_media", "no media file of this name beside it")
    for path in others:
        message = f"beside media of this name, but none of its captions: expected {', '.join(_CAPTIONS)}"
        yield Fault(Row(path, "file", _OTHER), split_name(path)[0], "not_captions", message)


def _beside(root: Path, media: set[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Caption files by the id of their media, the best first; and other files with the name of media."""
    found: dict[str, list[tuple[int, int, str]]] = {}
    others: list[str] = []
    for path in Walk(root):
        stem, kind = split_name(path)
        if kind not in _CAPTIONS:
            others += [path] if stem in media and kind not in ANY_KINDS else []
            continue
        language = None if stem in media else _LANGUAGE.fullmatch(stem)
        owner = language.group(1) if language else stem
        if owner in media or kind in _ALWAYS or (kind in _ALONE and _failure_of(root / path) is None):
            other = 0 if not language else 1 if language.group(2).lower().startswith("en") else 2
            found.setdefault(owner, []).append((other, _CAPTIONS.index(kind), path))
    return {owner: [path for *_, path in sorted(files)] for owner, files in found.items()}, others


def _take_captions(root: Path, video: Video, paths: list[str]) -> Iterator[Fault]:
    for path in paths:
        row = Row(path, "file", _CAPTION)
        if video.caption_path:
            yield Fault(row, video.video_id, "other_captions", f"{video.caption_path} is taken instead")
        elif (failure := _failure_of(root / path)) is None:
            video.caption_path = path
            video.rows.append(row)
        elif failure.reason == "unreadable" or not _is_manifest(root / path):  # which may be called as a video is
            yield Fault(row, video.video_id, failure.reason, failure.message)


def _failure_of(path: Path) -> Failure | None:
    """Why a file is not to be taken for captions by its content; of WebVTT and SRT, the run tells."""
    kind = split_name(path.name)[1]
    if kind in _ALWAYS:
        return None
    try:
        with path.open("rb") as file:
            data = file.readline(LONGEST) if kind == "csv" else file.read(MAX_CAPTION_BYTES + 1)
    except OSError as error:
        return Failure("unreadable", "captions", f"{path.name}: cannot be read: {error.strerror}")
    if kind == "csv" and has_header(decode_text(data)):
        return None
    if len(data) > MAX_CAPTION_BYTES:
        return Failure("too_large", "captions", f"{path.name}: more than {MAX_CAPTION_BYTES} bytes")
    track = read_track(data, path.name)
    return track if isinstance(track, Failure) else None


def _is_manifest(path: Path) -> bool:
    """Whether it is an input manifest, such as an earlier run of this wrote."""
    return path.suffix == ".csv" and {"video_id", "video_path"} <= set(header(path))
