"""From a data set as published to an input manifest: every row is either in it or in the list of what is missing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from preprocess.adapters import ADAPTERS
from preprocess.adapters.given import check_captions, check_index, check_media
from preprocess.adapters.items import ENTRIES, LONGEST, Adapter, Fault, Item, Narration, Request, Row, Video, encodable
from preprocess.adapters.media import MediaIndex
from preprocess.adapters.output import AdaptOutput
from preprocess.captions.split import is_split_name
from preprocess.inputs import is_video_id
from shared.atomic import disk_full_stops
from shared.errors import InputFileError, RequestError

_CAPTION_KINDS = ("csv",)


@dataclass
class AdaptResult:
    """manifest, missing: the files written. kinds: published rows (or files) in all, by what they are counted as, and
    kinds_left: of these, not in the manifest; left_out: these by reason. splits: videos by split, empty name for none.
    several: names with several files, of which one was taken. advice: what to say in the config for captions of this
    kind, or nothing.
    root: the folder that `root` must name in the config, where media lie outside of the manifest's folder.
    """

    manifest: Path
    missing: Path
    videos: int = 0
    with_captions: int = 0
    several: int = 0
    splits: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    kinds_left: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    root: Path | None = None
    advice: str = ""

    @property
    def rows(self) -> int:
        return self.kinds.total()


def adapt(
    dataset: str,
    index: Sequence[Path],
    media: Path | None = None,
    manifest: Path | None = None,
    captions: Path | None = None,
    fold: int | None = None,
) -> AdaptResult:
    """Write the input manifest of a data set.

    index: its files as published, in the form that the adapter's docstring says. media: the folder below which its
    videos or images lie (default: the folder that `index` is, else the folder of its first file). manifest: what to
    write (default: `videos.csv` in `media`). captions, fold: for the data sets that take them.

    Raises RequestError (InputFileError) for an unknown data set, an index that is not one of it, an option it does not
    take, a folder that cannot be read; EnvironmentLacking where pyarrow is absent and needed; StoppedEarly when the
    disk is full. The manifest that was there then stays.
    """
    adapter = _adapter(dataset, captions, fold)
    if not index:
        raise RequestError(
            f"adapt {dataset} names no index; expected {adapter.about}. Example: adapt {adapter.example}"
        )
    index = [Path(path) for path in index]
    for path in index:
        check_index(path, adapter.about, adapter.takes)
    media = media or (index[0] if index[0].is_dir() else index[0].parent)
    check_media(media)
    if captions is not None:
        check_captions(captions)
    manifest = manifest or media / "videos.csv"
    _check_output(manifest, [*index, *([captions] if captions else [])])
    caption_files = MediaIndex(captions, _CAPTION_KINDS) if captions is not None and captions.is_dir() else None
    request = Request(tuple(index), MediaIndex(media, adapter.kinds), captions, fold, caption_files)
    with disk_full_stops(manifest), AdaptOutput(manifest, adapter.columns) as output:
        run = _Run(request, output)
        for item in adapter.read(request):
            run.take(item)
        if run.result.rows == 0:
            named = ", ".join(map(str, index))
            raise InputFileError(f"{named} holds no rows: expected {adapter.about} with something in it")
        run.take_unread()
        output.finish()
    run.result.root = run.root
    run.result.several = request.media.several
    run.result.advice = adapter.advice if run.result.with_captions else ""
    return run.result


def _adapter(dataset: str, captions: Path | None, fold: int | None) -> Adapter:
    adapter = ADAPTERS.get(dataset)
    if adapter is None:
        raise RequestError(f"no adapter for a data set {dataset!r}; there are {', '.join(ADAPTERS)}")
    for option, value in (("captions", captions), ("fold", fold)):
        if value is not None and option not in adapter.options:
            takers = ", ".join(name for name, other in ADAPTERS.items() if option in other.options)
            raise RequestError(f"adapt {dataset} takes no --{option}; leave it out. It is for {takers}")
    return adapter


def _check_output(manifest: Path, inputs: Sequence[Path]) -> None:
    if manifest.suffix != ".csv" or os.path.isdir(manifest):  # noqa: PTH112  (is_dir raises where it may not look)
        raise RequestError(f"manifest {manifest} is not a file name that ends in .csv; give --out one that does")
    for path in inputs:
        if os.path.exists(manifest) and path.samefile(manifest):  # noqa: PTH110  (exists raises where it may not look)
            raise RequestError(f"manifest {manifest} would replace the index of the data set; give --out another name")


class _Run:
    """Takes what an adapter says, finds the media, and keeps the account."""

    def __init__(self, request: Request, output: AdaptOutput) -> None:
        self.result = AdaptResult(output.manifest, output.missing)
        self._media, self._output = request.media, output
        self._caption_files = request.caption_files or request.media
        self._first: dict[str, Row] = {}
        self._narrated: dict[str, str] = {}
        self._folder = output.manifest.parent.resolve()
        media, captions = self._media.root.resolve(), self._caption_files.root.resolve()
        self._media_prefix, self._caption_prefix = _prefix(media, self._folder), _prefix(captions, self._folder)
        self._holds_all = os.path.commonpath([media, captions, self._folder])

    @property
    def root(self) -> Path | None:
        """What holds the manifest and all that it names, links followed; None where the manifest's folder does."""
        return None if Path(self._holds_all) == self._folder else Path(self._holds_all)

    def take_unread(self) -> None:
        """Account for what lies among media and captions and cannot be looked at."""
        indexes = dict.fromkeys((self._media, self._caption_files))
        for entry in (entry for index in indexes for entry in index.unread):
            self._leave_out(Fault(Row(entry.path, "entry", ENTRIES), "", "unreadable", entry.message))

    def take(self, item: Item) -> None:
        if isinstance(item, Fault):
            self._leave_out(item)
        elif isinstance(item, Narration):
            self._take_narration(item)
        else:
            self._take_video(item)

    def _take_narration(self, item: Narration) -> None:
        reason, message, _ = self._look_up(item.video_id, item.names)
        if not reason and item.video_id in self._narrated:
            reason, message = "duplicate", f"{item.video_id} has captions already"
        if reason:
            self._leave_out(Fault(item.row, item.video_id, reason, message))
            return
        self.result.kinds[item.row.kind] += 1
        self._narrated[item.video_id] = self._output.add_captions(item.video_id, item.captions)

    def _take_video(self, video: Video) -> None:
        reason, message, path = self._look_up(video.video_id, video.names, video.folder, video.path)
        if not reason and (message := _unwritable(video)):
            reason = "malformed"
        first = self._first.get(video.video_id)
        if not reason and first is not None:
            reason, message = "duplicate", f"{video.video_id} stands in {first.file} {first.place} already"
        if reason:
            for row in video.rows:
                self._leave_out(Fault(row, video.video_id, reason, message))
            return
        self._first[video.video_id] = video.rows[0]
        captions, own = self._captions(video)
        self._widen(self._media.real(path))
        if captions and not own:
            self._widen(self._caption_files.real(video.caption_path))
        self._output.add_video(video.video_id, self._media_prefix + path, video.split, video.attributes, captions, own)
        self.result.kinds.update(row.kind for row in video.rows)
        self.result.videos += 1
        self.result.with_captions += bool(captions)
        self.result.splits[video.split] += 1

    def _widen(self, path: str) -> None:
        if not path.startswith(self._holds_all + "/"):
            self._holds_all = os.path.commonpath([self._holds_all, os.path.dirname(path)])  # noqa: PTH120

    def _captions(self, video: Video) -> tuple[str, bool]:
        if video.captions:
            return self._output.add_captions(video.video_id, video.captions), True
        if video.video_id in self._narrated:
            return self._narrated[video.video_id], True
        return self._caption_prefix + video.caption_path if video.caption_path else "", False

    def _look_up(
        self, video_id: str, names: tuple[str, ...], folder: str = "", path: str | None = None
    ) -> tuple[str, str, str]:
        """Why there is no such video (reason and message), or the path of its media."""
        if not is_video_id(video_id) or len(video_id) > LONGEST:
            return "malformed", f"id {video_id[:100]!r}: expected printable text without spaces around it", ""
        path = path or self._media.find(names, folder)
        if path is None:
            return "missing_media", f"no file of the name {names[0]!r} with a known extension", ""
        return "", "", path

    def _leave_out(self, fault: Fault) -> None:
        self.result.kinds[fault.row.kind] += 1
        self.result.kinds_left[fault.row.kind] += 1
        self.result.left_out[fault.reason] += 1
        self._output.leave_out(fault)


def _unwritable(video: Video) -> str:
    """Why a video cannot stand in a manifest as the next stage reads it; empty if it can."""
    if video.split and not is_split_name(video.split):
        return f"split {video.split[:40]!r}: expected letters, digits, - and _"
    for name, value in video.attributes.items():
        if len(value) > LONGEST or not encodable(value):
            return f"{name} {value[:40]!r}: expected at most {LONGEST} characters that UTF-8 can hold"
    return ""


def _prefix(root: Path, folder: Path) -> str:
    return "" if root == folder else os.path.relpath(root, folder) + "/"
