"""What an adapter leaves: an input manifest, caption files, and a list of all that is not in the manifest.

    NAME.csv                      the manifest, as preprocess/inputs.py reads it
    NAME.missing.csv              file,place,video_id,reason,message: every published row that was left out
    NAME.captions-<hash>/ab/*.csv start,end,text: captions that the data set does not publish as files of their own

Caption files are written first, into a folder named by what is in it; the manifest, which names the folder, comes last.
Whatever is killed whenever, the manifest and what it names are the old ones or the new ones.
"""

from __future__ import annotations

import csv
import fcntl
import filecmp
import io
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TextIO
from urllib.parse import quote

import xxhash

from preprocess.adapters.items import Fault, Text
from preprocess.adapters.media import Walk
from shared.atomic import fsync_directory, fsync_file, make_directory, move_into_place
from shared.errors import RequestError
from shared.manifest_writer import seconds

_LONGEST_NAME = 160


class AdaptOutput:
    """Use as a context manager; nothing is seen of it before `finish`. Raises RequestError where it may not write."""

    def __init__(self, manifest: Path, columns: Iterable[str]) -> None:
        self.manifest = manifest
        self.missing = manifest.with_name(f"{manifest.stem}.missing.csv")
        self._columns = tuple(columns)
        self._work = manifest.with_name(f".{manifest.stem}.adapting")
        self._digest = xxhash.xxh3_128()
        self._files = ExitStack()
        self._wrote_captions = False

    def __enter__(self) -> AdaptOutput:
        try:
            make_directory(self.manifest.parent)
            self._take_work()
        except OSError as error:
            folder = self.manifest.parent
            raise RequestError(f"{folder} cannot be written: {error.strerror}; give --out a path that can") from None
        self._rows = self._open("rows.csv")
        self._left_out = self._open("missing.csv")
        self._left_out.write(_line(["file", "place", "video_id", "reason", "message"]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._files.close()  # writes what is left in buffers, for which a full disk has no room
        finally:
            shutil.rmtree(self._work)
            os.close(self._lock)

    def add_captions(self, video_id: str, captions: Iterable[Text]) -> str:
        """Write the caption file of a video; returns its name for `add_video`."""
        digest = xxhash.xxh3_64_hexdigest(video_id.encode())
        name = quote(video_id, safe="")
        if len(name) > _LONGEST_NAME:
            name = f"{name[:_LONGEST_NAME]}-{digest}"
        path = f"{digest[:2]}/{name}.csv"
        buffer = io.StringIO(newline="")
        rows = csv.writer(buffer, lineterminator="\n")
        rows.writerow(["start", "end", "text"])
        rows.writerows([seconds(text.start), seconds(text.end), text.text] for text in captions)
        data = buffer.getvalue().encode()
        target = self._work / "captions" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        self._digest.update(f"{path}\n{len(data)}\n".encode() + data)
        self._wrote_captions = True
        return path

    def add_video(
        self, video_id: str, path: str, split: str, attributes: dict[str, str], captions: str = "", own: bool = False
    ) -> None:
        """path: the media file from the manifest's folder; captions: its caption file from there too, or, where it is
        one of `own`, what `add_captions` returned.
        """
        values = [attributes.get(name, "") for name in self._columns]
        self._rows.write(_line([str(int(own)), video_id, path, captions, split, *values]))

    def leave_out(self, fault: Fault) -> None:
        row = [fault.row.file, fault.row.place, fault.video_id, fault.reason, fault.message]
        # Ids and texts that UTF-8 cannot hold stand here too, with the odd character shown as an escape.
        self._left_out.write(_line([field.encode("utf-8", "backslashreplace").decode() for field in row]))

    def finish(self) -> None:
        """Make it all durable and seen: captions, then the list of what is missing, then the manifest."""
        folder = f"{self.manifest.stem}.captions-{self._digest.hexdigest()[:12]}" if self._wrote_captions else ""
        self._files.close()
        self._write_manifest(folder)
        if folder:
            self._place_captions(self.manifest.with_name(folder))
        for name, target in (("missing.csv", self.missing), ("manifest.csv", self.manifest)):
            fsync_file(self._work / name)
            move_into_place(self._work / name, target)
        self._drop_older(folder)

    def _open(self, name: str) -> TextIO:
        path = self._work / name
        return self._files.enter_context(path.open("w", encoding="utf-8", newline=""))

    def _write_manifest(self, folder: str) -> None:
        """The folder's name is known only now that all captions are written."""
        with (
            (self._work / "rows.csv").open(encoding="utf-8", newline="") as source,
            (self._work / "manifest.csv").open("w", encoding="utf-8", newline="") as target,
        ):
            target.write(_line(["video_id", "video_path", "caption_path", "split", *self._columns]))
            for own, video_id, path, captions, *rest in csv.reader(source):
                target.write(_line([video_id, path, f"{folder}/{captions}" if own == "1" else captions, *rest]))

    def _place_captions(self, target: Path) -> None:
        made = self._work / "captions"
        if target.exists() and _same(made, target):
            return
        # One call for up to millions of small files, whose own fsync would take hours.
        os.sync()
        if target.exists():
            target.rename(self._work / "replaced")
        made.rename(target)
        fsync_directory(target.parent)

    def _drop_older(self, folder: str) -> None:
        ours = re.compile(re.escape(self.manifest.stem) + r"\.captions-[0-9a-f]{12}")
        for path in self.manifest.parent.iterdir():
            if path.name != folder and ours.fullmatch(path.name):
                shutil.rmtree(path)

    def _take_work(self) -> None:
        """Lock the folder of unfinished files, which the kernel unlocks when a process dies, and clear it."""
        self._work.mkdir(exist_ok=True)
        self._lock = os.open(self._work, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = os.fstat(self._lock).st_nlink == 0
        except BlockingIOError:
            gone = True
        if gone:
            os.close(self._lock)
            raise RequestError(
                f"{self.manifest} is being written by another process; wait for it, or give --out another"
            )
        for path in self._work.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _line(values: Sequence[str]) -> str:
    """A CSV row that ends with LF. The csv module is told CRLF, because only then it quotes a field with a lone CR."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(values)
    return text.getvalue().removesuffix("\r\n") + "\n"


def _same(made: Path, there: Path) -> bool:
    """Whether two folders of caption files hold the same, to the byte."""
    names = list(Walk(made))
    return names == list(Walk(there)) and all(filecmp.cmp(made / name, there / name, shallow=False) for name in names)
