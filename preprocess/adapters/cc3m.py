"""Conceptual Captions (Sharma et al., ACL 2018; ai.google.com/research/ConceptualCaptions).

Index: `Train_GCC-training.tsv`, `Validation_GCC-1.1.0-Validation.tsv`: a caption, a tab, a URL, no quoting and no
header (one of `caption<tab>url`, which img2dataset wants, is no row). Media: the folder of img2dataset, which says of
which URL an image is; the image's key there is the id. An image is a video of one frame, which its caption spans.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from preprocess.adapters.img2dataset import Downloads, image
from preprocess.adapters.items import Fault, Item, Request, Row, encodable
from preprocess.adapters.tables import lines, split_from_name
from shared.errors import InputFileError

COLUMNS = ("url",)
_FORM = "Train_GCC-training.tsv of CC3M: a caption, a tab and a URL in each line"


def read(request: Request) -> Iterator[Item]:
    for path in request.index:
        _check(path)
    downloads = Downloads(request.media.root)
    for path in request.index:
        split = split_from_name(path)
        for number, line in lines(path, _FORM):
            row = Row(path.name, f"line {number}")
            caption, _, url = line.partition("\t")
            if _is_row(line) and encodable(line):
                yield image(row, url, caption, downloads.take(url), split)
            elif number > 1 or line.lower() != "caption\turl":
                yield Fault(row, "", "malformed", "expected UTF-8: a caption, a tab and a URL")


def _check(path: Path) -> None:
    if not any(_is_row(line) for _, line in lines(path, _FORM)):
        raise InputFileError(f"index {path} has no line with one tab and a URL after it; expected {_FORM}")


def _is_row(line: str) -> bool:
    caption, tab, url = line.partition("\t")
    return bool(caption and tab) and url.startswith(("http://", "https://")) and "\t" not in url
