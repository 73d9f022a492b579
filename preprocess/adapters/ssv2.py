"""Something-Something V2 (Goyal et al., ICCV 2017; 20BN, now Qualcomm).

Index: `something-something-v2-train.json`, `-validation.json`, `-test.json` (or `train.json` and so on), a list of
{"id", "label", "template", "placeholders"}; of the test set, {"id"} alone. `label` is the sentence with the objects
named and becomes the caption, `template` without its brackets is the class, as in `labels.json`. Media: `<id>.webm`,
clips, so the caption spans the whole of its file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from preprocess.adapters.items import WHOLE, Fault, Item, Request, Row, Video, id_of, text_of, timed_text
from preprocess.adapters.tables import json_items, split_from_name

COLUMNS = ("label",)
_FORM = "something-something-v2-train.json"


def read(request: Request) -> Iterator[Item]:
    for path in request.index:
        for row, entry in json_items(path, "", _FORM):
            yield _video(path, row, entry)


def _video(path: Path, row: Row, entry: Any) -> Item:
    video_id = id_of(entry.get("id")) if isinstance(entry, dict) else ""
    if not video_id:
        return Fault(row, "", "malformed", "expected an object with an 'id'")
    video = Video(video_id, [row], (video_id,), split=split_from_name(path))
    if "label" not in entry and "template" not in entry:
        return video
    text, template = timed_text(0, WHOLE, entry.get("label")), text_of(entry.get("template"))
    if isinstance(text, str) or not template:
        why = text if isinstance(text, str) else "expected a 'template' of words"
        return Fault(row, video_id, "malformed", why)
    video.captions.append(text)
    video.attributes["label"] = template.replace("[", "").replace("]", "")
    return video
