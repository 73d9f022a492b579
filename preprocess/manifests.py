"""Captions kept in a store, and the row spans of one stream, to a manifest set. Reads no video; rows only on request.

    captions as found -> read -> clean -> segment -> align with rows -> tokenise (in batches across videos) -> set

Video by video, so that memory does not grow with the number of captions. Every video the store knows ends in the set's
videos or in its failures.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from preprocess.captions.clean import CleanConfig
from preprocess.captions.embeddings import CaptionEmbedder
from preprocess.captions.encoders import EmbeddingsConfig
from preprocess.captions.filters import CaptionFilter, FilterConfig
from preprocess.captions.segment import SegmentConfig
from preprocess.captions.similarity import SimilarityFilter
from preprocess.captions.split import SplitConfig, read_exclusions
from preprocess.captions.tokenise import Tokenizer, TokenizerConfig, load_tokenizer
from preprocess.captions.windows import WindowConfig
from preprocess.near_duplicates import find_near_duplicates
from preprocess.prepare import Prepared, Preparer, is_removed
from preprocess.set_report import SetReport
from shared.captions import KeptCaptions, read_captions
from shared.checks import check_file
from shared.config import Config
from shared.fingerprint import fingerprint
from shared.manifest_writer import ManifestSetWriter
from shared.schema import ManifestInfo, Name
from shared.store import Store, StoreWriter

# Raised whenever the same captions and config give another set, so that sets made before are made again.
_VERSION = 3
_BATCH_CAPTIONS = 4096


class SetConfig(Config):
    """One manifest set: the stream whose rows it refers to, and how captions become its windows and token ids.

    stream: whose rows the windows count. clean: what is taken out of cues and repaired. segment: where to cut anew.
    filters: which captions are left out. windows: the spans that are samples. split: which video trains.
    tokenizer: what makes token ids.
    embeddings: a frozen text encoder that writes the captions' embeddings beside their ids; null: none.
    """

    stream: Name = "default"
    clean: CleanConfig = CleanConfig()
    segment: SegmentConfig = SegmentConfig()
    filters: FilterConfig = FilterConfig()
    windows: WindowConfig = WindowConfig()
    split: SplitConfig = SplitConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    embeddings: EmbeddingsConfig | None = None


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


def build_set(writer: StoreWriter, name: str, section: SetConfig) -> BuiltSet:
    """Make the set `name` from what the store holds, and commit it; a whole one of the very same is left as it is.

    Raises StoreError for a stream that is not there, DamageFound for captions that cannot be read, and what
    `load_tokenizer` and `read_exclusions` raise.
    """
    store = writer.store
    stream = store.stream(section.stream)
    tools = _load_tools(store, section)
    inputs = _inputs_fingerprint(writer, section, tools)
    if name in store.root.sets and store.root.sets[name].stream_fingerprint == stream.fingerprint:
        info = _if_whole(store, name)
        if info is not None and info.report.get("inputs") == inputs:
            return BuiltSet(name, False, info)
    directory = writer.scratch / f"set-{name}"
    shutil.rmtree(directory, ignore_errors=True)
    output = ManifestSetWriter(directory, tools.embedder.info if tools.embedder else None)
    preparer = Preparer(section, stream, tools.caption_filter, tools.similarity, tools.excluded)
    if section.split.near_duplicates != "off":
        preparer.near = find_near_duplicates(preparer, read_captions(store), writer.scratch)
    with settled_heap():
        report = _Builder(preparer, tools, output).add_all(read_captions(store))
    if preparer.near is not None:
        report.near_duplicates = preparer.near.report()
    info, files = output.finish(
        name=name,
        stream=section.stream,
        stream_fingerprint=stream.fingerprint,
        config=section.model_dump(mode="json"),
        tokenizer=tools.tokenizer.identity,
        report=report.as_dict(inputs),
    )
    writer.commit_set(info, files)
    return BuiltSet(name, True, info)


@contextmanager
def settled_heap() -> Iterator[None]:
    """What is loaded now is not searched for garbage until the end: in what torch holds, it is a third of the time."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _if_whole(store: Store, name: str) -> ManifestInfo | None:
    """What a set says of itself; None where one of its files is damaged, since making it again mends it."""
    folder = f"{store.root.sets[name].path}/"
    files = {file: entry for file, entry in store.root.files.items() if file.startswith(folder)}
    if any(check_file(store.path / file, entry) for file, entry in files.items()):
        return None
    return store.manifest_set(name).info


@dataclass(frozen=True)
class _Tools:
    """What a set is made with beside the store and its config."""

    tokenizer: Tokenizer
    caption_filter: CaptionFilter
    similarity: SimilarityFilter | None
    embedder: CaptionEmbedder | None
    excluded: frozenset[str]


def _load_tools(store: Store, section: SetConfig) -> _Tools:
    config = section.filters.similarity
    return _Tools(
        load_tokenizer(section.tokenizer),
        CaptionFilter(section.filters),
        SimilarityFilter(config, store.stream(config.stream or section.stream)) if config else None,
        CaptionEmbedder(section.embeddings) if section.embeddings else None,
        read_exclusions(section.split.exclude),
    )


def _inputs_fingerprint(writer: StoreWriter, section: SetConfig, tools: _Tools) -> str:
    root = writer.store.root
    return fingerprint(
        {
            "version": _VERSION,
            "config": section.model_dump(mode="json"),
            "tokenizer": tools.tokenizer.identity,
            "filter": tools.caption_filter.identity,
            "similarity": tools.similarity.identity if tools.similarity else None,
            "embeddings": tools.embedder.info.model_dump(mode="json") if tools.embedder else None,
            "excluded": sorted(tools.excluded),
            "captions": [ref.name for ref in root.captions],
            "stream": root.streams[section.stream].model_dump(mode="json"),
        }
    )


class _Builder:
    """Puts videos into a set, one after another."""

    def __init__(self, preparer: Preparer, tools: _Tools, output: ManifestSetWriter) -> None:
        self._preparer = preparer
        self._tools = tools
        self._output = output
        self._report = SetReport(most=preparer.section.clean.examples)

    def add_all(self, videos: Iterable[KeptCaptions]) -> SetReport:
        for batch in _batches(self._prepared(videos)):
            self._write(batch)
        return self._report

    def _prepared(self, videos: Iterable[KeptCaptions]) -> Iterator[Prepared]:
        for video in videos:
            if is_removed(video):
                continue  # a takedown: no table names it
            prepared = self._preparer.prepare(video, self._report)
            if isinstance(prepared, Prepared):
                yield prepared
            else:
                self._report.add_failure(prepared.reason)
                self._output.add_failure(video.video_id, prepared.stage, prepared.reason, prepared.message)

    def _write(self, videos: list[Prepared]) -> None:
        texts = [caption.text for video in videos for caption in video.captions]
        encoded = self._tools.tokenizer.encode(texts)
        vectors = self._tools.embedder.embed(texts) if self._tools.embedder else None
        self._report.rates.add(encoded)
        done = 0
        for video in videos:
            last = done + len(video.captions)
            self._write_video(video, encoded.ids[done:last], None if vectors is None else vectors[done:last])
            done = last

    def _write_video(self, video: Prepared, ids: list[list[int]], vectors: np.ndarray | None) -> None:
        first = self._output.add_captions(
            video.video_id,
            [caption.start for caption in video.captions],
            [caption.end for caption in video.captions],
            [caption.text for caption in video.captions],
            ids,
            vectors,
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


def _batches(videos: Iterable[Prepared]) -> Iterator[list[Prepared]]:
    batch: list[Prepared] = []
    captions = 0
    for video in videos:
        batch.append(video)
        captions += len(video.captions)
        if captions >= _BATCH_CAPTIONS or len(batch) >= _BATCH_CAPTIONS:
            yield batch
            batch, captions = [], 0
    if batch:
        yield batch
