"""A plain folder: media, and caption files of the same name beside them.

`NAME.mp4` (or another extension) with `NAME.vtt`, `NAME.srt` or `NAME.csv` (`start,end,text`), or with a language in
between, `NAME.en.vtt`; of several, the first of these in this order, English before other languages. `NAME.txt` holds
one text for the whole file (as img2dataset writes it). Folders inside are looked through, and the path without its
extension is the id. A first folder named `train`, `val`, `test` (or as data sets write these) gives the split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from preprocess.adapters.items import LONGEST, WHOLE, Fault, Item, Request, Row, Video, timed_text
from preprocess.adapters.media import ANY_KINDS, Walk, split_name
from preprocess.adapters.tables import SPLITS
from preprocess.captions.csv_track import has_header
from preprocess.captions.read import decode_text
from shared.errors import RequestError

_CAPTIONS = ("vtt", "srt", "csv", "txt")
_LANGUAGE = re.compile(r"(.+)\.([A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,10})*)")


def read(request: Request) -> Iterator[Item]:
    root = request.media.root
    if len(request.index) != 1 or not request.index[0].samefile(root):
        raise RequestError("adapt folder takes one folder, and no --media: media and captions lie in it together")
    media = sorted(request.media.paths(), key=lambda path: (split_name(path)[0], ANY_KINDS.index(split_name(path)[1])))
    captions = _caption_files(root, {split_name(path)[0] for path in media})
    for path in media:
        video_id = split_name(path)[0]
        top = path.partition("/")[0].lower() if "/" in path else ""
        video = Video(video_id, [Row(path, "file")], (path,), split=SPLITS.get(top, ""), path=path)
        found = captions.pop(video_id, [])
        if found:
            yield from _take_captions(root, video, found)
        yield video
    for paths in captions.values():
        for path in paths:
            yield Fault(Row(path, "file"), split_name(path)[0], "missing_media", "no media file of this name beside it")


def _caption_files(root: Path, media: set[str]) -> dict[str, list[str]]:
    """Caption files by the id of their media, the best first. CSV and text files without media are no captions, nor are
    tables without the columns of captions: a manifest may be called as a video is.
    """
    found: dict[str, list[tuple[int, int, str]]] = {}
    for path in Walk(root):
        stem, kind = split_name(path)
        if kind not in _CAPTIONS:
            continue
        language = None if stem in media else _LANGUAGE.fullmatch(stem)
        owner = language.group(1) if language else stem
        if kind == "csv" and owner in media and not _is_caption_table(root / path):
            continue
        if owner in media or kind in ("vtt", "srt"):
            other = 0 if not language else 1 if language.group(2).lower().startswith("en") else 2
            found.setdefault(owner, []).append((other, _CAPTIONS.index(kind), path))
    return {owner: [path for *_, path in sorted(files)] for owner, files in found.items()}


def _is_caption_table(path: Path) -> bool:
    with path.open("rb") as file:
        return has_header(decode_text(file.readline(LONGEST)))


def _take_captions(root: Path, video: Video, paths: list[str]) -> Iterator[Fault]:
    first, *others = paths
    for path in others:
        yield Fault(Row(path, "file"), video.video_id, "other_captions", f"{first} is taken instead")
    row = Row(first, "file")
    if split_name(first)[1] != "txt":
        video.caption_path = first
    else:
        with (root / first).open("rb") as file:
            text = timed_text(0, WHOLE, decode_text(file.read(4 * LONGEST + 1)))
        if isinstance(text, str):
            yield Fault(row, video.video_id, "malformed", text)
            return
        video.captions.append(text)
    video.rows.append(row)
