"""Cues as written to captions as spoken: named steps, each of which can be switched off and is counted.

Cleaning never invents a word, never reorders, keeps times inside the video and, applied again, changes nothing. The
last is why the steps are repeated until none finds anything: an entity may hide a tag, a removed mark a second one.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pydantic import Field

from preprocess.captions import markup, rolling, text, timing
from preprocess.captions.spans import Span, Step, each
from preprocess.captions.types import Caption, Cue, Word
from shared.config import Config

STEPS: dict[str, Step] = {
    "times": each(timing.repair_times),
    "zero_length": each(timing.drop_zero_length),
    "tags": markup.strip_tags,
    "entities": each(markup.strip_entities),
    "rolling": rolling.unroll,
    "mojibake": each(text.fix_mojibake),
    "unicode": each(text.normalise_unicode),
    "sounds": each(text.drop_sounds),
    "speakers": each(text.drop_speakers),
    "whitespace": each(text.collapse_whitespace),
    "empty": each(text.drop_empty),
    "beyond_end": timing.keep_inside,
    "duplicates": timing.drop_duplicates,
    "overlaps": timing.cut_overlaps,
}

# Every pass but the last shortens something; the bound is for two steps that would undo each other for ever.
_MOST_PASSES = 32


class CleanConfig(Config):
    """One switch per step, in the order of the steps; `examples` (before, after) are kept of each."""

    times: bool = True
    zero_length: bool = True
    tags: bool = True
    entities: bool = True
    rolling: bool = True
    mojibake: bool = True
    unicode: bool = True
    sounds: bool = True
    speakers: bool = True
    whitespace: bool = True
    empty: bool = True
    beyond_end: bool = True
    duplicates: bool = True
    overlaps: bool = True
    examples: int = Field(default=3, ge=0)


@dataclass
class CleanResult:
    """captions in the order of the file; for every step that was on: cues changed or dropped, and a few of them."""

    captions: tuple[Caption, ...]
    counts: dict[str, int]
    examples: dict[str, tuple[tuple[str, str], ...]]


@dataclass
class _Tally:
    wanted: int
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def note(self, name: str, before: Span, after: Span | None) -> None:
        self.counts[name] += 1
        examples = self.examples.setdefault(name, [])
        if len(examples) < self.wanted:
            examples.append((_show(before), "" if after is None else _show(after)))


def clean(cues: Sequence[Cue], duration: float | None, config: CleanConfig) -> CleanResult:
    """Clean one track. `duration` is the video's, in seconds; None if unknown, and then nothing is beyond its end."""
    names = [name for name in STEPS if getattr(config, name)]
    tally = _Tally(config.examples, dict.fromkeys(names, 0))
    spans = [Span(cue.start, cue.end, cue.text) for cue in cues]
    for _ in range(_MOST_PASSES):
        before = spans
        for name in names:
            spans = _apply(name, spans, duration, tally)
        if spans == before:
            break
    examples = {name: tuple(found) for name, found in tally.examples.items()}
    return CleanResult(tuple(_caption(span) for span in spans), tally.counts, examples)


def _apply(name: str, spans: list[Span], duration: float | None, tally: _Tally) -> list[Span]:
    kept: list[Span] = []
    for before, after in zip(spans, STEPS[name](spans, duration), strict=True):
        if after is not before and after != before:
            tally.note(name, before, after)
        if after is not None:
            kept.append(after)
    return kept


def _show(span: Span) -> str:
    return f"{span.start:.3f} --> {span.end:.3f} {span.text}"


_PIECE = re.compile(r"\S+")


def _caption(span: Span) -> Caption:
    return Caption(span.start, span.end, span.text, _words(span) if span.marks else ())


def _words(span: Span) -> tuple[Word, ...]:
    """Words at white space, and at marks inside text that is written without it (Chinese, Japanese, Thai)."""
    words: list[Word] = []
    marks = deque(span.marks)
    for piece in _PIECE.finditer(span.text):
        edges = [piece.start(), *_inner_edges(span.text, marks, *piece.span()), piece.end()]
        for begin, end in pairwise(edges):
            time = None
            while marks and marks[0][0] <= begin:
                time = marks.popleft()[1]
            words.append(Word(span.text[begin:end], time, begin))
    return tuple(words)


def _inner_edges(text: str, marks: deque[tuple[int, float]], begin: int, end: int) -> list[int]:
    edges: list[int] = []
    for at, _ in marks:
        if at >= end:
            break
        if at > begin and at not in edges[-1:] and not text[at - 1 : at + 1].isascii():
            edges.append(at)
    return edges
