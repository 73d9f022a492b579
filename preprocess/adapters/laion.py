"""LAION-400M, -2B-en and others of their form (Schuhmann et al., 2021, 2022): Parquet files of image URLs and texts.

Index, one of: the Parquet files as published, with `URL` and `TEXT` (`url`, `caption` or `text` in later releases)
among others; or, better for many millions of rows, the `00000.parquet` files that img2dataset wrote beside the images,
which name every URL that was tried and its `key`. Media: the folder of img2dataset (nothing is downloaded here). The
image's key there is the id. An image is a video of one frame, which its text spans.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from preprocess.adapters.img2dataset import NEEDED, Downloads, download_of, image
from preprocess.adapters.items import Fault, Item, Request, encodable
from preprocess.adapters.parquet import parquet_columns, parquet_rows
from shared.errors import InputFileError

COLUMNS = ("url",)
_FORM = "Parquet files of LAION with URL and TEXT, or those of img2dataset with url, caption and key"
_URL = ("URL", "url")
_TEXT = ("TEXT", "text", "caption")


def read(request: Request) -> Iterator[Item]:
    downloads: Downloads | None = None
    for path in _files(request.index):
        found = parquet_columns(path, _FORM)
        url, text = (next((name for name in names if name in found), None) for names in (_URL, _TEXT))
        if url is None or text is None:
            columns = ", ".join(found)[:300]
            raise InputFileError(f"index {path} has the columns {columns}; expected {_FORM}")
        tried = set(NEEDED) <= set(found)
        if not tried and downloads is None:
            downloads = Downloads(request.media.root)
        yield from _read(path, url, text, downloads if not tried else None)


def _files(index: tuple[Path, ...]) -> list[Path]:
    files: list[Path] = []
    for path in index:
        inside = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not inside:
            raise InputFileError(f"folder {path} holds no index; expected {_FORM}")
        files += inside
    return files


def _read(path: Path, url_column: str, text_column: str, downloads: Downloads | None) -> Iterator[Item]:
    columns = dict.fromkeys((url_column, text_column, *(NEEDED if downloads is None else ())))
    for row, fields in parquet_rows(path, list(columns), _FORM):
        url = fields[url_column]
        if not isinstance(url, str) or not url or not encodable(url):
            yield Fault(row, "", "malformed", f"URL {url!r:.60}: expected one")
        else:
            download = download_of(fields) if downloads is None else downloads.take(url)
            yield image(row, url, fields[text_column], download)
