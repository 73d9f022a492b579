"""WebVid-2M and -10M (Bain et al., ICCV 2021; https://m-bain.github.io/webvid-dataset/).

Index: `results_2M_train.csv`, `results_2M_val.csv` (10M likewise), `videoid,contentUrl,duration,page_dir,name`, a row a
clip; `name` is its caption. Media: `<page_dir>/<videoid>.mp4`. Duration is text such as `PT00H00M31S`; a caption spans
the whole of its file.
"""

from __future__ import annotations

from collections.abc import Iterator

from preprocess.adapters.items import WHOLE, Fault, Item, Request, Video, timed_text
from preprocess.adapters.tables import split_from_name, table

COLUMNS = ("contentUrl", "duration", "page_dir")
_NEEDED = ("videoid", "contentUrl", "duration", "page_dir", "name")


def read(request: Request) -> Iterator[Item]:
    for path in request.index:
        split = split_from_name(path)
        for found in table(path, _NEEDED, "results_2M_train.csv of WebVid"):
            if isinstance(found, Fault):
                yield found
                continue
            row, fields = found
            name = fields["videoid"]
            text = timed_text(0, WHOLE, fields["name"])
            if isinstance(text, str):
                yield Fault(row, name, "malformed", text)
                continue
            attributes = {column: fields[column] for column in COLUMNS}
            yield Video(name, [row], (name,), fields["page_dir"], split, attributes, [text])
