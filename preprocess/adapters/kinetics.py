"""Kinetics-400, -600 and -700 (Kay et al., 2017; Carreira et al., 2018, 2019; files of the CVD foundation's mirror).

Index: `train.csv`, `val.csv` (or `validate.csv`), `test.csv`: `label,youtube_id,time_start,time_end,split`, with
`is_cc` in some; test files of the challenges have no `label`. Media: `<label>/<youtube_id>_<start>_<end>.mp4`, start
and end in six digits. That name is the id: one YouTube video may be cut more than once. No captions, the label is a
column.
"""

from __future__ import annotations

from collections.abc import Iterator

from preprocess.adapters.items import Fault, Item, Request, Row, Video, number_of
from preprocess.adapters.tables import split_from_name, split_name_of, table

COLUMNS = ("label", "youtube_id", "time_start", "time_end")
_NEEDED = ("youtube_id", "time_start", "time_end")


def read(request: Request) -> Iterator[Item]:
    for path in request.index:
        for found in table(path, _NEEDED, "train.csv of Kinetics"):
            if isinstance(found, Fault):
                yield found
            else:
                yield _video(*found, split_from_name(path))


def _video(row: Row, fields: dict[str, str], split: str) -> Item:
    start, end = number_of(fields["time_start"]), number_of(fields["time_end"])
    if not fields["youtube_id"] or start is None or end is None or not 0 <= start < end < 1e6:
        times = f"{fields['time_start'][:40]!r}, {fields['time_end'][:40]!r}"
        return Fault(
            row, fields["youtube_id"], "malformed", f"expected a youtube_id, a start and a later end, not {times}"
        )
    name = f"{fields['youtube_id']}_{int(start):06d}_{int(end):06d}"
    label = fields.get("label", "")
    split = split_name_of(fields.get("split", "")) or split
    return Video(name, [row], (name,), label, split, {column: fields.get(column, "") for column in COLUMNS})
