"""MSVD, the Microsoft Research video description corpus (Chen and Dolan, ACL 2011; distributed as YouTubeClips).

Index: `AllVideoDescriptions.txt` (English), lines `<youtube id>_<start>_<end> <sentence>` after some that begin with
`#`; or `video_corpus.csv` (all languages; also `multilingual_corpus.csv`), `VideoID,Start,End,WorkerID,Source,
AnnotationTime,Language,Description`, of which the English rows are taken and the others listed. With them the usual
split, `train_list.txt`, `val_list.txt`, `test_list.txt`, an id a line. Media: `<youtube id>_<start>_<end>.avi`, clips,
so a caption spans the whole of its file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from preprocess.adapters.items import WHOLE, Fault, Groups, Item, Request, Row, encodable, timed_text
from preprocess.adapters.tables import lines, split_from_name, table
from shared.errors import InputFileError

_FORM = "AllVideoDescriptions.txt or video_corpus.csv of MSVD"
_LIST = "train_list.txt, val_list.txt or test_list.txt of MSVD"
_NEEDED = ("VideoID", "Start", "End", "Language", "Description")


def read(request: Request) -> Iterator[Item]:
    groups = Groups()
    lists = [path for path in request.index if path.suffix == ".txt" and split_from_name(path)]
    captions = [path for path in request.index if path not in lists]
    if not captions:
        raise InputFileError(f"index {request.index[0]} is a list of ids: give {_FORM} with it")
    for path in captions:
        yield from _read_csv(path, groups) if path.suffix == ".csv" else _read_text(path, groups)
    for path in lists:
        yield from _read_list(path, groups)
    yield from groups


def _read_text(path: Path, groups: Groups) -> Iterator[Fault]:
    for number, line in lines(path, _FORM):
        if not line.startswith("#"):
            video_id, _, sentence = line.partition(" ")
            yield from _add(groups, Row(path.name, f"line {number}"), video_id, sentence)
    if not any(True for _ in groups):
        raise InputFileError(f"index {path} holds no descriptions; expected {_FORM}")


def _read_csv(path: Path, groups: Groups) -> Iterator[Fault]:
    for found in table(path, _NEEDED, _FORM):
        if isinstance(found, Fault):
            yield found
            continue
        row, fields = found
        video_id = f"{fields['VideoID']}_{fields['Start']}_{fields['End']}"
        if fields["Language"] != "English":
            yield Fault(
                row, video_id, "other_language", f"a description in {fields['Language'][:40]!r}, not in English"
            )
        else:
            yield from _add(groups, row, video_id, fields["Description"])


def _add(groups: Groups, row: Row, video_id: str, sentence: str) -> Iterator[Fault]:
    text = timed_text(0, WHOLE, sentence)
    if not isinstance(text, str) and not _is_clip(video_id):
        text = f"{video_id[:60]!r}: expected <youtube id>_<start>_<end>"
    if isinstance(text, str):
        yield Fault(row, video_id, "malformed", text)
    else:
        groups.add(video_id, row).captions.append(text)


def _is_clip(video_id: str) -> bool:
    parts = video_id.rsplit("_", 2)
    return len(parts) == 3 and bool(parts[0]) and all(part.isascii() and part.isdecimal() for part in parts[1:])


def _read_list(path: Path, groups: Groups) -> Iterator[Fault]:
    split = split_from_name(path)
    for number, line in lines(path, _LIST):
        row, video_id = Row(path.name, f"line {number}"), line.strip()
        video = groups.get(video_id) if encodable(video_id) else None
        if video is None:
            yield Fault(row, video_id, "unknown_video", f"{video_id[:60]!r} has no description")
        elif video.split:
            yield Fault(row, video_id, "duplicate", f"{video_id} is in the split {video.split} already")
        else:
            video.rows.append(row)
            video.split = split
