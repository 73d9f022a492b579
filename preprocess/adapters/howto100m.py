"""HowTo100M (Miech et al., ICCV 2019; https://www.di.ens.fr/willow/research/howto100m/).

Index: `HowTo100M_v1.csv` with `video_id,category_1,category_2,rank,task_id`, a row a video. Media: `<video_id>.mp4`,
`.webm` or `.mkv`. Captions (`--captions`): `caption.json` (stop words removed) or `raw_caption.json`, both
`{video_id: {"start": [s], "end": [s], "text": [words]}}` in one file of gigabytes, or a folder with
`<video_id>.csv` of `start,end,text`, as the MIL-NCE release has them. Ids may start with `-`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from preprocess.adapters.items import Fault, Item, Narration, Request, Row, Text, Video, timed_text
from preprocess.adapters.tables import json_pairs, table

COLUMNS = ("category_1", "category_2", "rank", "task_id")
_FORM = "HowTo100M_v1.csv"
_CAPTIONS = "caption.json or raw_caption.json of HowTo100M"


def read(request: Request) -> Iterator[Item]:
    files = request.caption_files
    if request.captions is not None and files is None:
        # Narration comes in its own order; only that of the index's videos is of use.
        wanted = {row["video_id"] for path in request.index for row in _rows(path)}
        yield from _narration(request.captions, wanted)
    for path in request.index:
        for found in table(path, ("video_id", *COLUMNS), _FORM):
            if isinstance(found, Fault):
                yield found
                continue
            row, fields = found
            name = fields["video_id"]
            captions = files.find((name,)) if files else None
            attributes = {column: fields[column] for column in COLUMNS}
            yield Video(name, [row], (name,), attributes=attributes, caption_path=captions or "")


def _rows(path: Path) -> Iterator[dict[str, str]]:
    return (found[1] for found in table(path, ("video_id", *COLUMNS), _FORM) if not isinstance(found, Fault))


def _narration(path: Path, wanted: set[str]) -> Iterator[Item]:
    for row, video_id, value in json_pairs(path, "", _CAPTIONS):
        if video_id not in wanted:
            yield Fault(row, video_id, "not_in_index", f"captions of {video_id!r}, which no row of the index names")
            continue
        texts, faults = _texts(row, video_id, value)
        yield from faults
        if texts:
            yield Narration(video_id, row, (video_id,), tuple(texts))


def _texts(row: Row, video_id: str, value: Any) -> tuple[list[Text], list[Fault]]:
    found = [value.get(key) for key in ("start", "end", "text")] if isinstance(value, dict) else []
    columns = [column for column in found if isinstance(column, list)]
    if len(columns) != 3 or len({len(column) for column in columns}) != 1:
        return [], [Fault(row, video_id, "malformed", "expected lists start, end and text of one length")]
    texts: list[Text] = []
    faults: list[Fault] = []
    for number, (start, end, words) in enumerate(zip(*columns, strict=True)):
        text = timed_text(start, end, words)
        if isinstance(text, Text):
            texts.append(text)
        else:
            faults.append(Fault(Row(row.file, f"{row.place}[{number}]"), video_id, "malformed", text))
    if not texts:
        faults.append(Fault(row, video_id, "malformed", "none of its captions is one"))
    return texts, faults
