"""One video on its way into a manifest set, up to tokenising: captions read, cleaned, cut, and aligned with rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from preprocess.captions.clean import clean
from preprocess.captions.filters import CaptionFilter
from preprocess.captions.read import read_track
from preprocess.captions.segment import segment
from preprocess.captions.similarity import SimilarityFilter
from preprocess.captions.split import is_split_name, split_of
from preprocess.captions.types import Caption, CaptionTrack
from preprocess.captions.windows import Alignment, align
from preprocess.near_duplicates import NearDuplicates
from preprocess.set_report import SetReport
from shared.captions import KeptCaptions
from shared.edit.ids import REMOVED
from shared.errors import Failure
from shared.features import StreamReader

if TYPE_CHECKING:
    from preprocess.manifests import SetConfig


@dataclass(frozen=True)
class Prepared:
    """One video up to tokenising. duration: seconds."""

    video_id: str
    split: str
    duration: float
    rows: int
    captions: tuple[Caption, ...]
    alignment: Alignment


class Preparer:
    """Prepares the videos of one set. near: what was found to be in another split too, once it was looked for."""

    def __init__(
        self,
        section: SetConfig,
        stream: StreamReader,
        caption_filter: CaptionFilter,
        similarity: SimilarityFilter | None,
        excluded: frozenset[str],
    ) -> None:
        self.section, self.stream = section, stream
        self.near: NearDuplicates | None = None
        self._filter, self._similarity = caption_filter, similarity
        self._excluded = excluded
        self._failed = dict(stream.failures)

    def prepare(self, video: KeptCaptions, report: SetReport) -> Prepared | Failure:
        """The video with its windows, or why it is not in the set; what happens to its cues goes into the report."""
        number = self.number_of(video)
        if isinstance(number, Failure):
            return number
        split = self.split_of(video)
        if self.near is not None and (similar := self.near.failure_of(video.video_id)) is not None:
            # A caption file that cannot be used is told whatever else is found.
            track = _first_readable(video)
            return track if isinstance(track, Failure) else similar
        captions = self.captions_of(video, number, report)
        if isinstance(captions, Failure):
            return captions
        if self.near is not None:
            captions = self.near.without_duplicates(video.video_id, split, captions)
        duration, spans = float(self.stream.durations[number]), self.stream.spans(number)
        alignment = align(captions, spans, duration, self.section.windows)
        return Prepared(video.video_id, split, duration, len(spans), captions, alignment)

    def number_of(self, video: KeptCaptions) -> int | Failure:
        """The video's number in the stream, or why it cannot be used."""
        number = int(self.stream.index_of([video.video_id])[0])
        if video.video_id in self._excluded:
            return Failure("excluded", "split", f"stands in the exclusion list {self.section.split.exclude}")
        if video.video_id in self._failed:
            return self._failed[video.video_id]
        if number < 0:
            return Failure("not_extracted", "extract", f"stream {self.section.stream!r} has no rows of it yet")
        if video.failure is not None:
            return Failure(video.failure.reason, video.failure.stage, video.failure.message)
        if self.section.split.given and video.split and not is_split_name(video.split):
            return Failure("bad_split", "split", f"split {video.split!r} is not of letters, digits, - and _")
        return number

    def split_of(self, video: KeptCaptions) -> str:
        return split_of(video.video_id, video.split, self.section.split)

    def captions_of(self, video: KeptCaptions, number: int, report: SetReport) -> tuple[Caption, ...] | Failure:
        """Cleaned, cut and filtered; none for a video without tracks."""
        track = _first_readable(video)
        if track is None or isinstance(track, Failure):
            return track or ()
        timed_words = self.section.segment.by != "cue"
        cleaned = clean(track.cues, float(self.stream.durations[number]), self.section.clean, timed_words)
        report.add_track(video.video_id, track, cleaned)
        captions, dropped = self._filter.apply(segment(cleaned.captions, self.section.segment))
        if self._similarity is not None:
            captions = self._similarity.apply(video.video_id, captions, dropped)
        report.add_filtered(video.video_id, dropped)
        return captions


def is_removed(video: KeptCaptions) -> bool:
    """Whether the video was taken down."""
    return video.failure is not None and video.failure.reason == REMOVED


def _first_readable(video: KeptCaptions) -> CaptionTrack | Failure | None:
    """The first track that can be read; the first one's failure if none can; None for a video without tracks."""
    first: Failure | None = None
    for kept in video.tracks:
        track = read_track(kept.data, kept.name)
        if not isinstance(track, Failure):
            return track
        first = first or track
    return first
