"""UCF-101 (Soomro et al., 2012; the archive UCF101TrainTestSplits-RecognitionTask).

Index: the folder `ucfTrainTestlist`, or files of it: `trainlist01.txt` to `03`, lines `<label>/<clip>.avi <number>`,
and `testlist01.txt` to `03`, lines `<label>/<clip>.avi`. The line's path is the id. Media: `<label>/<clip>.avi`.
`--fold` (default 1) says which of the three is `split`. No captions, the label is a column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from preprocess.adapters.folds import choose, index_files, take_fold
from preprocess.adapters.items import Fault, Groups, Item, Request, Row
from preprocess.adapters.tables import lines
from shared.errors import InputFileError

_FORM = "trainlist01.txt and testlist01.txt of UCF-101"
_NAME = re.compile(r"(train|test)list0([1-3])\.txt")
_LINE = re.compile(r"(\S+?)/(\S+\.avi)(?: +\d+)?")


def read(request: Request) -> Iterator[Item]:
    files = index_files(request.index, "t*list0[1-3].txt")
    if not files:
        raise InputFileError(f"folder {request.index[0]} holds no index; expected {_FORM}")
    groups = Groups()
    given: set[int] = set()
    for path in files:
        named = _NAME.fullmatch(path.name)
        if named is None:
            raise InputFileError(f"index {path} is none of UCF-101 by its name; expected {_FORM}")
        given.add(int(named.group(2)))
        yield from _read(path, named.group(1), f"split{named.group(2)}", groups)
    yield from take_fold(iter(groups), choose(request.fold, given), given)


def _read(path: Path, split: str, column: str, groups: Groups) -> Iterator[Fault]:
    for number, line in lines(path, _FORM):
        row = Row(path.name, f"line {number}")
        found = _LINE.fullmatch(line.strip())
        if found is None:
            yield Fault(row, line.strip(), "malformed", "expected <label>/<clip>.avi and, in a train list, a number")
            continue
        label, name = found.groups()
        video_id = f"{label}/{name}"
        known = groups.get(video_id)
        if known and column in known.attributes:
            yield Fault(row, video_id, "duplicate", f"{video_id} is in {column} {known.attributes[column]} already")
            continue
        video = groups.add(video_id, row, (name,))
        video.folder = label
        video.attributes |= {"label": label, column: split}
