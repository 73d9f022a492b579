"""DiDeMo (Hendricks et al., ICCV 2017; the README of LocalizingMoments).

Index: `train_data.json`, `val_data.json`, `test_data.json`, a list of {"annotation_id", "description", "video",
"times": [[first, last], ...], "num_segments", "dl_link"}. A video is cut into chunks of five seconds, and each
annotator names the first and the last chunk of the moment: [1, 4] is 5 s to 25 s. The caption spans what most of them
say; of as many, what was said first. Media: the name in `video`, with that or another extension.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from preprocess.adapters.items import Fault, Groups, Item, Request, Text, id_of, timed_text
from preprocess.adapters.tables import json_items, split_from_name

CHUNK_SECONDS = 5
_FORM = "train_data.json of DiDeMo"


def read(request: Request) -> Iterator[Item]:
    for path in request.index:
        yield from _read(path)


def _read(path: Path) -> Iterator[Item]:
    groups = Groups()
    for row, entry in json_items(path, "", _FORM):
        video_id = id_of(entry.get("video")) if isinstance(entry, dict) else ""
        text = _moment(entry) if video_id else "expected an object with a 'video'"
        if isinstance(text, str):
            yield Fault(row, video_id, "malformed", text)
            continue
        video = groups.add(video_id, row)
        video.split = split_from_name(path)
        video.captions.append(text)
    yield from groups


def _moment(entry: dict[str, Any]) -> Text | str:
    times = entry.get("times")
    if not isinstance(times, list) or not times or not all(map(_is_chunks, times)):
        return "expected 'times' with pairs of chunk numbers, the first not after the last"
    first, last = Counter(map(tuple, times)).most_common(1)[0][0]
    return timed_text(CHUNK_SECONDS * first, CHUNK_SECONDS * (last + 1), entry.get("description"))


def _is_chunks(pair: object) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(chunk, int) and not isinstance(chunk, bool) and chunk >= 0 for chunk in pair)
        and pair[0] <= pair[1]
    )
