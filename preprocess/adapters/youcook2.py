"""YouCook2 (Zhou et al., AAAI 2018; http://youcook2.eecs.umich.edu/).

Index, one of: `youcookii_annotations_trainval.json`, `{"database": {video_id: {"duration", "subset": "training" |
"validation" | "testing", "recipe_type", "video_url", "annotations": [{"id", "segment": [start, end], "sentence"}]}}}`,
seconds; or a CSV such as `validation_youcook.csv` of the MIL-NCE release, `end,start,task,text,video_id`, a row a
segment, whose split is in the file's name. Media: `raw_videos/<subset>/<recipe_type>/<video_id>.mp4`, `.mkv`, `.webm`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from preprocess.adapters.items import Fault, Groups, Item, Request, Row, Text, Video, id_of, timed_text
from preprocess.adapters.tables import json_pairs, split_from_name, split_name_of, table

COLUMNS = ("recipe_type",)
_JSON = "youcookii_annotations_trainval.json"
_CSV = "validation_youcook.csv (or give youcookii_annotations_trainval.json)"


def read(request: Request) -> Iterator[Item]:
    for path in request.index:
        yield from _read_json(path) if path.suffix == ".json" else _read_csv(path)


def _read_json(path: Path) -> Iterator[Item]:
    for row, video_id, entry in json_pairs(path, "database", _JSON):
        segments = entry.get("annotations") if isinstance(entry, dict) else None
        if not isinstance(segments, list):
            yield Fault(row, video_id, "malformed", "expected an object with a list 'annotations'")
            continue
        recipe = id_of(entry.get("recipe_type"))
        video = Video(video_id, [row], (video_id,), folder=recipe, split=split_name_of(entry.get("subset")))
        video.attributes["recipe_type"] = recipe
        yield from _add_segments(video, segments)
        yield video


def _add_segments(video: Video, segments: list[Any]) -> Iterator[Fault]:
    first = video.rows[0]
    for number, segment in enumerate(segments):
        row = Row(first.file, f"{first.place}.annotations[{number}]")
        span = segment.get("segment") if isinstance(segment, dict) else None
        if not isinstance(span, list) or len(span) != 2:
            yield Fault(row, video.video_id, "malformed", "expected an object with a 'segment' of two numbers")
            continue
        text = timed_text(span[0], span[1], segment.get("sentence"))
        if isinstance(text, str):
            yield Fault(row, video.video_id, "malformed", text)
        else:
            video.rows.append(row)
            video.captions.append(text)


def _read_csv(path: Path) -> Iterator[Item]:
    groups = Groups()
    split = split_from_name(path)
    for found in table(path, ("end", "start", "task", "text", "video_id"), _CSV):
        if isinstance(found, Fault):
            yield found
            continue
        row, fields = found
        text = timed_text(fields["start"], fields["end"], fields["text"])
        if not isinstance(text, Text):
            yield Fault(row, fields["video_id"], "malformed", text)
            continue
        video = groups.add(fields["video_id"], row)
        video.captions.append(text)
        video.folder, video.split, video.attributes = fields["task"], split, {"recipe_type": fields["task"]}
    yield from groups
