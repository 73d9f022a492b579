"""The input manifest: a CSV of videos, their caption files and splits, with paths below its own folder.

Columns: `video_id`, `video_path` (both needed), `caption_path`, `split` (both optional); any other column is kept
with the video as an attribute. manifests/README.md is the page for people.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from preprocess.captions.split import is_split_name
from shared.errors import Failure, InputFileError

_NEEDED = ("video_id", "video_path")
_KNOWN = (*_NEEDED, "caption_path", "split")


@dataclass(frozen=True)
class InputVideo:
    """One row of the manifest. Paths are absolute; `failure` says why the media file is not to be touched.

    given, caption_given: the paths as the manifest has them, for messages that are stored: these must be the same
    wherever the manifest lies.
    """

    video_id: str
    video_path: Path
    caption_path: Path | None
    split: str | None
    attributes: dict[str, str]
    failure: Failure | None = None
    caption_failure: Failure | None = None
    given: str = ""
    caption_given: str = ""


def read_inputs(manifest: Path, root: Path | None = None) -> list[InputVideo]:
    """The manifest's videos in its order.

    root: what paths may not leave; default the manifest's own folder. A path that does is a failure of its video
    (`outside_root`), not of the manifest. Raises InputFileError naming file and line for a manifest that is not one.
    """
    confined = (root or manifest.parent).resolve()
    videos: list[InputVideo] = []
    line_of: dict[str, int] = {}
    spelled: dict[str, str] = {}
    for line, row in _rows(manifest):
        video_id = row["video_id"]
        if not is_video_id(video_id):
            raise InputFileError(
                f"{manifest} line {line}: video_id {video_id!r}: expected printable text without spaces around it"
            )
        if video_id in line_of:
            raise InputFileError(
                f"{manifest} line {line}: video_id {video_id!r} stands in line {line_of[video_id]} already"
            )
        line_of[video_id] = line
        _check_split(manifest, line, row.get("split", ""), spelled)
        videos.append(_video(row, manifest.parent.resolve(), confined))
    if not videos:
        raise InputFileError(f"{manifest} holds no videos: expected a row for each below the header")
    return videos


def _check_split(manifest: Path, line: int, split: str, spelled: dict[str, str]) -> None:
    """spelled: the splits so far, by their names in small letters; `Train` beside `train` is a slip."""
    if not split:
        return
    if not is_split_name(split):
        raise InputFileError(f"{manifest} line {line}: split {split!r}: expected letters, digits, - and _")
    if (other := spelled.setdefault(split.casefold(), split)) != split:
        raise InputFileError(f"{manifest} line {line}: split {split!r}, and {other!r} above: expected one spelling")


def is_video_id(text: str) -> bool:
    """Whether a text can name a video: printable, not empty, no spaces around it."""
    return bool(text) and text.isprintable() and text == text.strip()


def _rows(manifest: Path) -> list[tuple[int, dict[str, str]]]:
    try:
        with manifest.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            columns = reader.fieldnames or []
            _check_columns(manifest, columns)
            return [(reader.line_num, _whole_row(manifest, reader.line_num, row)) for row in reader]
    except FileNotFoundError:
        raise InputFileError(
            f"input manifest {manifest.absolute()} does not exist; relative paths in a config are taken from the "
            "folder that the command is typed in. manifests/README.md says how to write one"
        ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputFileError(f"input manifest {manifest} cannot be read as UTF-8 CSV: {error}") from None


def _check_columns(manifest: Path, columns: Sequence[str]) -> None:
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        hint = "; fields are separated by commas, not semicolons" if any(";" in name for name in columns) else ""
        found = ", ".join(columns) or "none"
        raise InputFileError(f"{manifest} has no column {missing[0]!r}; it has {found}{hint}")
    if len(set(columns)) != len(columns):
        raise InputFileError(f"{manifest} names a column twice: {', '.join(columns)}")
    for name in columns:
        near = difflib.get_close_matches(name.lower(), _KNOWN, n=1, cutoff=0.7)
        if name not in _KNOWN and near and near[0] not in columns:
            raise InputFileError(
                f"{manifest} has a column {name!r}; is {near[0]!r} meant? Give it that name, or one less like it"
            )


def _whole_row(manifest: Path, line: int, row: dict[str | None, str | list[str] | None]) -> dict[str, str]:
    if None in row or None in row.values():
        raise InputFileError(
            f"{manifest} line {line} has more or fewer fields than the header; quote fields that hold commas"
        )
    return {str(key): str(value) for key, value in row.items()}


def _video(row: dict[str, str], folder: Path, root: Path) -> InputVideo:
    path, failure = _confined(row["video_path"], folder, root, "input")
    caption_text = row.get("caption_path", "")
    caption, caption_failure = _confined(caption_text, folder, root, "captions") if caption_text else (None, None)
    return InputVideo(
        video_id=row["video_id"],
        video_path=path,
        caption_path=caption,
        split=row.get("split") or None,
        attributes={key: value for key, value in row.items() if key not in _KNOWN and value},
        failure=failure,
        caption_failure=caption_failure,
        given=row["video_path"],
        caption_given=caption_text,
    )


def not_there(given: str, why: str) -> str:
    """The message for a file of the manifest that cannot be read; nothing in it depends on where the manifest lies."""
    return f"{given}: {why}; looked for from the folder of the input manifest"


def _confined(text: str, folder: Path, root: Path, stage: str) -> tuple[Path, Failure | None]:
    if not text or "\0" in text:
        return folder, Failure("missing_file", stage, f"path {text!r} is not one")
    try:
        path = (folder / text).resolve()
        path.exists()  # raises for a name too long, which `resolve` does not
    except (OSError, RuntimeError) as error:  # a name too long, a loop of links
        return folder, Failure("missing_file", stage, f"path {text!r} cannot be followed: {error}")
    if not path.is_relative_to(root):
        return path, Failure("outside_root", stage, f"path {text!r} leaves {root}; set root= to a folder that holds it")
    return path, None
