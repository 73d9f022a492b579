"""Captions kept in a store, and the row spans of one stream, to a manifest set. Reads no video and no row.

    captions as found -> read -> clean -> segment -> align with rows -> tokenise (in batches across videos) -> set

Video by video, so that memory does not grow with the number of captions. Every video the store knows ends in the set's
videos or in its failures.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from preprocess.captions.clean import CleanConfig, clean
from preprocess.captions.filters import CaptionFilter, FilterConfig
from preprocess.captions.read import read_track
from preprocess.captions.segment import SegmentConfig, segment
from preprocess.captions.split import SplitConfig, is_split_name, read_exclusions, split_of
from preprocess.captions.tokenise import Tokenizer, TokenizerConfig, load_tokenizer
from preprocess.captions.types import Caption, CaptionTrack
from preprocess.captions.windows import Alignment, WindowConfig, align
from preprocess.set_report import SetReport
from shared.captions import KeptCaptions, read_captions
from shared.checks import check_file
from shared.config import Config
from shared.edit.ids import REMOVED
from shared.errors import Failure
from shared.features import StreamReader
from shared.fingerprint import fingerprint
from shared.manifest_writer import ManifestSetWriter
from shared.schema import ManifestInfo, Name
from shared.store import Store, StoreWriter

# Raised whenever the same captions and config give another set, so that sets made before are made again.
_VERSION = 2
_BATCH_CAPTIONS = 4096


class SetConfig(Config):
    """One manifest set: the stream whose rows it refers to, and how captions become its windows and token ids."""

    stream: Name = "default"
    clean: CleanConfig = CleanConfig()
    segment: SegmentConfig = SegmentConfig()
    filters: FilterConfig = FilterConfig()
    windows: WindowConfig = WindowConfig()
    split: SplitConfig = SplitConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()


@dataclass(frozen=True)
class BuiltSet:
    """changed: whether the store got a new set, or had this very one."""

    name: str
    changed: bool
    info: ManifestInfo

    def describe(self) -> str:
        """One line for people."""
        splits = ", ".join(f"{count} {split}" for split, count in self.info.splits.items()) or "none"
        state = "made" if self.changed else "unchanged"
        return f"set {self.name}: {state}, {self.info.captions} captions, windows: {splits}"


@dataclass(frozen=True)
class _Prepared:
    """One video up to tokenising."""

    video_id: str
    split: str
    duration: float
    rows: int
    captions: tuple[Caption, ...]
    alignment: Alignment


def build_set(writer: StoreWriter, name: str, section: SetConfig) -> BuiltSet:
    """Make the set `name` from what the store holds, and commit it; a whole one of the very same is left as it is.

    Raises StoreError for a stream that is not there, DamageFound for captions that cannot be read, and what
    `load_tokenizer` and `read_exclusions` raise.
    """
    store = writer.store
    stream = store.stream(section.stream)
    tokenizer = load_tokenizer(section.tokenizer)
    excluded = read_exclusions(section.split.exclude)
    caption_filter = CaptionFilter(section.filters)
    inputs = _inputs_fingerprint(writer, section, tokenizer, caption_filter, excluded)
    if name in store.root.sets and store.root.sets[name].stream_fingerprint == stream.fingerprint:
        info = _if_whole(store, name)
        if info is not None and info.report.get("inputs") == inputs:
            return BuiltSet(name, False, info)
    directory = writer.scratch / f"set-{name}"
    shutil.rmtree(directory, ignore_errors=True)
    output = ManifestSetWriter(directory)
    builder = _Builder(section, stream, tokenizer, caption_filter, excluded, output)
    report = builder.add_all(read_captions(store))
    info, files = output.finish(
        name=name,
        stream=section.stream,
        stream_fingerprint=stream.fingerprint,
        config=section.model_dump(mode="json"),
        tokenizer=tokenizer.identity,
        report=report.as_dict(inputs),
    )
    writer.commit_set(info, files)
    return BuiltSet(name, True, info)


def _if_whole(store: Store, name: str) -> ManifestInfo | None:
    """What a set says of itself; None where one of its files is damaged, since making it again mends it."""
    folder = f"{store.root.sets[name].path}/"
    files = {file: entry for file, entry in store.root.files.items() if file.startswith(folder)}
    if any(check_file(store.path / file, entry) for file, entry in files.items()):
        return None
    return store.manifest_set(name).info


def _inputs_fingerprint(
    writer: StoreWriter,
    section: SetConfig,
    tokenizer: Tokenizer,
    caption_filter: CaptionFilter,
    excluded: frozenset[str],
) -> str:
    root = writer.store.root
    return fingerprint(
        {
            "version": _VERSION,
            "config": section.model_dump(mode="json"),
            "tokenizer": tokenizer.identity,
            "filter": caption_filter.identity,
            "excluded": sorted(excluded),
            "captions": [ref.name for ref in root.captions],
            "stream": root.streams[section.stream].model_dump(mode="json"),
        }
    )


class _Builder:
    """Puts videos into a set, one after another."""

    def __init__(
        self,
        section: SetConfig,
        stream: StreamReader,
        tokenizer: Tokenizer,
        caption_filter: CaptionFilter,
        excluded: frozenset[str],
        output: ManifestSetWriter,
    ) -> None:
        self._section = section
        self._stream = stream
        self._tokenizer = tokenizer
        self._filter = caption_filter
        self._excluded = excluded
        self._output = output
        self._failed = dict(stream.failures)
        self._report = SetReport()

    def add_all(self, videos: Iterable[KeptCaptions]) -> SetReport:
        for batch in _batches(self._prepared(videos)):
            self._write(batch)
        return self._report

    def _prepared(self, videos: Iterable[KeptCaptions]) -> Iterator[_Prepared]:
        for video in videos:
            if video.failure is not None and video.failure.reason == REMOVED:
                continue  # a takedown: no table names it
            prepared = self._prepare(video)
            if isinstance(prepared, _Prepared):
                yield prepared
            else:
                self._report.add_failure(prepared.reason)
                self._output.add_failure(video.video_id, prepared.stage, prepared.reason, prepared.message)

    def _prepare(self, video: KeptCaptions) -> _Prepared | Failure:
        number = int(self._stream.index_of([video.video_id])[0])
        unusable = self._unusable(video, number)
        if unusable is not None:
            return unusable
        track = _first_readable(video)
        if isinstance(track, Failure):
            return track
        duration = float(self._stream.durations[number])
        spans = self._stream.spans(number)
        captions = self._captions(video.video_id, track, duration) if track else ()
        return _Prepared(
            video_id=video.video_id,
            split=split_of(video.video_id, video.split, self._section.split),
            duration=duration,
            rows=len(spans),
            captions=captions,
            alignment=align(captions, spans, duration, self._section.windows),
        )

    def _unusable(self, video: KeptCaptions, number: int) -> Failure | None:
        if video.video_id in self._excluded:
            return Failure("excluded", "split", f"stands in the exclusion list {self._section.split.exclude}")
        if video.video_id in self._failed:
            return self._failed[video.video_id]
        if number < 0:
            return Failure("not_extracted", "extract", f"stream {self._section.stream!r} has no rows of it yet")
        if video.failure is not None:
            return Failure(video.failure.reason, video.failure.stage, video.failure.message)
        if self._section.split.given and video.split and not is_split_name(video.split):
            return Failure("bad_split", "split", f"split {video.split!r} is not of letters, digits, - and _")
        return None

    def _captions(self, video_id: str, track: CaptionTrack, duration: float) -> tuple[Caption, ...]:
        timed_words = self._section.segment.by != "cue"
        cleaned = clean(track.cues, duration, self._section.clean, timed_words)
        self._report.add_track(video_id, track, cleaned)
        captions, dropped = self._filter.apply(segment(cleaned.captions, self._section.segment))
        self._report.add_filtered(video_id, dropped)
        return captions

    def _write(self, videos: list[_Prepared]) -> None:
        encoded = self._tokenizer.encode([caption.text for video in videos for caption in video.captions])
        self._report.rates.add(encoded)
        done = 0
        for video in videos:
            ids = encoded.ids[done : done + len(video.captions)]
            done += len(video.captions)
            self._write_video(video, ids)

    def _write_video(self, video: _Prepared, ids: list[list[int]]) -> None:
        first = self._output.add_captions(
            video.video_id,
            [caption.start for caption in video.captions],
            [caption.end for caption in video.captions],
            [caption.text for caption in video.captions],
            ids,
        )
        for window in video.alignment.windows:
            self._output.add_window(
                video.split,
                video.video_id,
                window.start,
                window.end,
                window.first_row,
                window.rows,
                [first + caption for caption in window.candidates],
            )
        self._output.add_video(video.video_id, video.split, video.duration, video.rows)
        self._report.add_video(video.video_id, video.split, len(video.captions), video.alignment)


def _first_readable(video: KeptCaptions) -> CaptionTrack | Failure | None:
    """The first track that can be read; the first one's failure if none can; None for a video without tracks."""
    first: Failure | None = None
    for kept in video.tracks:
        track = read_track(kept.data, kept.name)
        if not isinstance(track, Failure):
            return track
        first = first or track
    return first


def _batches(videos: Iterable[_Prepared]) -> Iterator[list[_Prepared]]:
    batch: list[_Prepared] = []
    captions = 0
    for video in videos:
        batch.append(video)
        captions += len(video.captions)
        if captions >= _BATCH_CAPTIONS or len(batch) >= _BATCH_CAPTIONS:
            yield batch
            batch, captions = [], 0
    if batch:
        yield batch
