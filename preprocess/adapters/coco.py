"""COCO captions (Chen et al., 2015; https://cocodataset.org/#format-data, section 5).

Index: `captions_train2017.json`, `captions_val2017.json` (2014 likewise): `{"images": [{"id", "file_name", ...}],
"annotations": [{"id", "image_id", "caption"}]}`. The image's `id` is the id, as text. Media: `train2017/<file_name>`.
An image is a video of one frame, which its captions span.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from preprocess.adapters.items import WHOLE, Fault, Groups, Item, Request, id_of, timed_text
from preprocess.adapters.tables import json_items, split_from_name

COLUMNS = ("file_name",)
_FORM = "captions_train2017.json of COCO"


def read(request: Request) -> Iterator[Item]:
    for path in request.index:
        yield from _read(path)


def _read(path: Path) -> Iterator[Item]:
    groups = Groups()
    for row, entry in json_items(path, "images", _FORM):
        image_id = id_of(entry.get("id")) if isinstance(entry, dict) else ""
        name = entry.get("file_name") if image_id else None
        if not isinstance(name, str) or not name:
            yield Fault(row, image_id, "malformed", "expected an object with 'id' and 'file_name'")
        elif groups.get(image_id) is not None:
            yield Fault(row, image_id, "duplicate", f"image {image_id} stands in 'images' already")
        else:
            video = groups.add(image_id, row, (name,))
            video.split, video.attributes = split_from_name(path), {"file_name": name}
            video.folder = path.stem.removeprefix("captions_")
    for row, entry in json_items(path, "annotations", _FORM):
        image_id = id_of(entry.get("image_id")) if isinstance(entry, dict) else ""
        text = timed_text(0, WHOLE, entry.get("caption")) if image_id else "expected an object with an 'image_id'"
        if isinstance(text, str):
            yield Fault(row, image_id, "malformed", text)
            continue
        owner = groups.get(image_id)
        if owner is None:
            yield Fault(row, image_id, "unknown_video", f"a caption of image {image_id}, which 'images' does not name")
            continue
        owner.rows.append(row)
        owner.captions.append(text)
    yield from groups
