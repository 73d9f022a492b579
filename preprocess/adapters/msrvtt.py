"""MSR-VTT (Xu et al., CVPR 2016; the README of its release).

Index, one of: `MSRVTT_data.json` (also `train_val_videodatainfo.json`, `test_videodatainfo.json`), `{"videos": [{"id",
"video_id", "category", "url", "start time", "end time", "split": "train" | "validate" | "test"}], "sentences":
[{"sen_id", "video_id", "caption"}]}`; or a CSV such as `msrvtt_test.csv`, `key,vid_key,video_id,sentence`, a row a
sentence, whose split is in the file's name. Media: `<video_id>.mp4`, clips, so a caption spans the whole of its file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from preprocess.adapters.items import WHOLE, Fault, Groups, Item, Request, id_of, timed_text
from preprocess.adapters.tables import json_items, split_from_name, split_name_of, table

COLUMNS = ("category", "url", "start_time", "end_time")
_JSON = "MSRVTT_data.json"
_CSV = "msrvtt_test.csv (or give MSRVTT_data.json)"


def read(request: Request) -> Iterator[Item]:
    for path in request.index:
        yield from _read_json(path) if path.suffix == ".json" else _read_csv(path)


def _read_json(path: Path) -> Iterator[Item]:
    groups = Groups()
    for row, entry in json_items(path, "videos", _JSON):
        video_id = id_of(entry.get("video_id")) if isinstance(entry, dict) else ""
        if not video_id:
            yield Fault(row, "", "malformed", "expected an object with a 'video_id'")
        elif groups.get(video_id) is not None:
            yield Fault(row, video_id, "duplicate", f"{video_id} stands in 'videos' already")
        else:
            video = groups.add(video_id, row)
            video.split = split_name_of(entry.get("split"))
            keys = ("category", "url", "start time", "end time")
            video.attributes = {key.replace(" ", "_"): _plain(entry.get(key)) for key in keys}
    for row, entry in json_items(path, "sentences", _JSON):
        video_id = id_of(entry.get("video_id")) if isinstance(entry, dict) else ""
        text = timed_text(0, WHOLE, entry.get("caption")) if video_id else "expected an object with a 'video_id'"
        if isinstance(text, str):
            yield Fault(row, video_id, "malformed", text)
            continue
        owner = groups.get(video_id)
        if owner is None:
            yield Fault(row, video_id, "unknown_video", f"a sentence of {video_id!r}, which 'videos' does not name")
            continue
        owner.rows.append(row)
        owner.captions.append(text)
    yield from groups


def _plain(value: object) -> str:
    return str(value) if isinstance(value, str | int | float) else ""


def _read_csv(path: Path) -> Iterator[Item]:
    groups = Groups()
    split = split_from_name(path)
    for found in table(path, ("key", "vid_key", "video_id", "sentence"), _CSV):
        if isinstance(found, Fault):
            yield found
            continue
        row, fields = found
        text = timed_text(0, WHOLE, fields["sentence"])
        if isinstance(text, str):
            yield Fault(row, fields["video_id"], "malformed", text)
            continue
        video = groups.add(fields["video_id"], row)
        video.split = split
        video.captions.append(text)
    yield from groups
