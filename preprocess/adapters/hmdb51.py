"""HMDB-51 (Kuehne et al., ICCV 2011; readme of its three splits).

Index, one of: `hmdb51.csv` of the MIL-NCE release, `video_id,label,split1,split2,split3`, whose labels end in `_test`
(taken off here) and whose ids end in `.avi` (kept); or the folder `testTrainMulti_7030_splits` (or files of it) with
`<label>_test_split<1-3>.txt`, lines `<clip>.avi <0|1|2>`. 1 is train, 2 test, 0 unused. Media: `<label>/<clip>.avi`.
`--fold` (default 1) says which of the three is `split`. No captions, the label is a column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from preprocess.adapters.folds import FOLDS, UNUSED, choose, index_files, take_fold
from preprocess.adapters.items import Fault, Groups, Item, Request, Row
from preprocess.adapters.tables import lines, table
from shared.errors import InputFileError

_CODES = {"0": UNUSED, "1": "train", "2": "test"}
_FORM = "hmdb51.csv, or files <label>_test_split1.txt of testTrainMulti_7030_splits"
_NEEDED = ("video_id", "label", "split1", "split2", "split3")
_LIST = re.compile(r"(.+)_test_split([1-3])\.txt")


def read(request: Request) -> Iterator[Item]:
    groups = Groups()
    files = index_files(request.index, "*_test_split[1-3].txt")
    if not files:
        raise InputFileError(f"folder {request.index[0]} holds no index; expected {_FORM}")
    given: set[int] = set()
    for path in files:
        if path.suffix == ".csv":
            given.update(FOLDS)
            yield from _read_csv(path, groups)
        else:
            given.add(_fold_of(path))
            yield from _read_list(path, groups)
    yield from take_fold(iter(groups), choose(request.fold, given), given)


def _fold_of(path: Path) -> int:
    named = _LIST.fullmatch(path.name)
    if named is None:
        raise InputFileError(f"index {path} is none of HMDB-51 by its name; expected {_FORM}")
    return int(named.group(2))


def _read_csv(path: Path, groups: Groups) -> Iterator[Fault]:
    for found in table(path, _NEEDED, _FORM):
        if isinstance(found, Fault):
            yield found
            continue
        row, fields = found
        folds = {f"split{fold}": _CODES.get(fields[f"split{fold}"].strip()) for fold in FOLDS}
        if None in folds.values() or groups.get(fields["video_id"]) is not None:
            yield _fault(row, fields["video_id"], None in folds.values())
            continue
        video = groups.add(fields["video_id"], row)
        video.folder = fields["label"].removesuffix("_test")
        video.attributes = {"label": video.folder, **{key: value for key, value in folds.items() if value}}


def _read_list(path: Path, groups: Groups) -> Iterator[Fault]:
    label, fold = path.name.rsplit("_test_split", 1)[0], _fold_of(path)
    for number, line in lines(path, _FORM):
        row = Row(path.name, f"line {number}")
        name, _, code = line.strip().rpartition(" ")
        known = groups.get(name.strip())
        if not name or code not in _CODES or (known and f"split{fold}" in known.attributes):
            yield _fault(row, name or line.strip(), code not in _CODES or not name)
            continue
        video = groups.add(name.strip(), row)
        video.folder = label
        video.attributes |= {"label": label, f"split{fold}": _CODES[code]}


def _fault(row: Row, video_id: str, malformed: bool) -> Fault:
    if malformed:
        return Fault(
            row, video_id, "malformed", "expected a clip and, for each split, 0 (unused), 1 (train) or 2 (test)"
        )
    return Fault(row, video_id, "duplicate", f"{video_id} has its split already")
