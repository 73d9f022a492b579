"""The folder that img2dataset leaves (github.com/rom1504/img2dataset, `output_format=files`).

`00000/000000000.jpg` and so on, and `00000.parquet` for each of these folders, with a row for every URL that was tried:
`url, caption, key, status, error_message` and others. `key` is the image's name; `status` is `success` or not.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preprocess.adapters.items import WHOLE, Fault, Item, Row, Video, id_of, timed_text
from preprocess.adapters.parquet import parquet_columns, parquet_rows
from shared.errors import InputFileError

NEEDED = ("url", "key", "status", "error_message")
_FORM = "00000.parquet of img2dataset"


@dataclass(frozen=True, slots=True)
class Download:
    """What became of one URL: the image's key, or why there is none."""

    key: str
    error: str


class Downloads:
    """All URLs that were tried, from the Parquet files of the folder. About 300 bytes of memory a URL.

    Raises InputFileError where there are none.
    """

    def __init__(self, folder: Path) -> None:
        self._by_url: dict[str, deque[Download]] = {}
        files = sorted(folder.glob("*.parquet"))
        if not files:
            raise InputFileError(
                f"{folder} holds no 00000.parquet: expected the folder of img2dataset, run with output_format=files, "
                "whose Parquet files say which image is of which URL"
            )
        for path in files:
            missing = [name for name in NEEDED if name not in parquet_columns(path, _FORM)]
            if missing:
                raise InputFileError(f"{path} has no column {missing[0]!r}; expected {_FORM} with {', '.join(NEEDED)}")
            for _, row in parquet_rows(path, NEEDED, _FORM):
                self._by_url.setdefault(str(row["url"]), deque()).append(download_of(row))

    def take(self, url: str) -> Download | None:
        """What became of the URL; each download is given once, in order, since an index may name a URL again."""
        found = self._by_url.get(url)
        return found.popleft() if found else None


def download_of(row: dict[str, Any]) -> Download:
    """What a row of img2dataset's Parquet files says."""
    key = id_of(row["key"])
    if row["status"] == "success" and key:
        return Download(key, "")
    return Download(key, str(row["error_message"] or row["status"] or "no status")[:200])


def image(row: Row, url: str, caption: object, download: Download | None, split: str = "") -> Item:
    """What one row of an index with a URL and a caption comes to."""
    text = timed_text(0, WHOLE, caption)
    if isinstance(text, str):
        return Fault(row, download.key if download else "", "malformed", text)
    if download is None:
        return Fault(
            row, "", "missing_media", f"{url[:200]} was not tried by img2dataset, or less often than it is named"
        )
    if download.error:
        return Fault(row, download.key, "missing_media", f"{url[:200]} could not be had: {download.error}")
    return Video(download.key, [row], (download.key,), split=split, attributes={"url": url}, captions=[text])
