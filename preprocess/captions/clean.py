"""Cues as written to captions as spoken: named steps, each of which can be switched off and is counted.

Cleaning never invents a word, never reorders, keeps times inside the video and, applied again, changes nothing. The
last is why the steps are repeated until none finds anything: an entity may hide a tag, a removed mark a second one.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, pairwise

from pydantic import Field

from preprocess.captions import markup, rolling, text, timing
from preprocess.captions.spans import Each, Span, Step, is_ordered, is_plain
from preprocess.captions.types import Caption, Cue, Word
from shared.config import Config

STEPS: dict[str, Step] = {
    "times": Each(timing.repair_times, is_ordered),
    "zero_length": Each(timing.drop_zero_length, is_ordered),
    "tags": markup.strip_tags,
    "entities": Each(markup.strip_entities, markup.has_no_entity),
    "rolling": rolling.unroll,
    "mojibake": Each(text.fix_mojibake, is_plain),
    "unicode": Each(text.normalise_unicode, is_plain),
    "sounds": Each(text.drop_sounds, is_plain),
    "speakers": Each(text.drop_speakers, is_plain),
    "whitespace": Each(text.collapse_whitespace, is_plain),
    "empty": Each(text.drop_empty, is_plain),
    "beyond_end": timing.keep_inside,
    "duplicates": timing.drop_duplicates,
    "overlaps": timing.cut_overlaps,
}

# Every pass but the last shortens something; the bound is for two steps that would undo each other for ever.
_MOST_PASSES = 32


class CleanConfig(Config):
    """One switch per step, in the order of the steps.

    times: start after end is swapped, before zero cut; no number, no cue. zero_length: a cue of no length goes.
    tags: markup goes, inline timestamps count. entities: `&amp;` and its like become characters.
    rolling: what a cue repeats of the one before goes (automatic captions).
    mojibake: text decoded with the wrong table is mended. unicode: NFC, unseen characters go.
    sounds: marks as [Music] go. speakers: marks as `>>` and labels as `HOST` go.
    whitespace: a run of it is one space. empty: a cue without letter or digit goes.
    beyond_end: what lies after the end of the video goes. duplicates: a cue that says the same at the same time goes.
    overlaps: a cue ends where the next begins. examples: how many pairs of before and after a set keeps of each step.
    """

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
            pair = _show(before), "" if after is None else _show(after)
            if pair[0] != pair[1]:  # a time that moved by less than is shown says nothing
                examples.append(pair)


def clean(cues: Sequence[Cue], duration: float | None, config: CleanConfig, words: bool = True) -> CleanResult:
    """Clean one track.

    duration: of the video, in seconds; None if unknown, and then nothing is beyond its end. words: whether captions of
    a track that times words carry them; nobody needs them where cues stay as they are.
    """
    names = [name for name in STEPS if getattr(config, name)]
    tally = _Tally(config.examples, dict.fromkeys(names, 0))
    passes = _passes(names, tally)
    spans = [Span(*cue) for cue in cues]
    for _ in range(_MOST_PASSES):
        before = spans
        for apply in passes:
            spans = apply(spans, duration)
        if spans == before:
            break
    examples = {name: tuple(found) for name, found in tally.examples.items() if found}
    return CleanResult(tuple(_caption(span, words) for span in spans), tally.counts, examples)


_Pass = Callable[[list[Span], float | None], list[Span]]


def _passes(names: list[str], tally: _Tally) -> list[_Pass]:
    """Steps that look at single spans and follow each other are one walk over the track."""
    passes: list[_Pass] = []
    for single, group in groupby(names, lambda name: isinstance(STEPS[name], Each)):
        if single:
            passes.append(_each_pass({name: step for name in group if isinstance(step := STEPS[name], Each)}, tally))
        else:
            passes += [partial(_apply_whole, name, tally) for name in group]
    return passes


def _each_pass(steps: dict[str, Each], tally: _Tally) -> _Pass:
    changes = [(name, step.change) for name, step in steps.items()]
    looks = {step.spares for step in steps.values()}
    spares = looks.pop() if len(looks) == 1 else None
    settled: dict[int, Span] = {}  # by id: what all of these steps leave as it is needs no second look

    def walk(spans: list[Span], duration: float | None) -> list[Span]:
        del duration
        kept: list[Span] = []
        for before in spans:
            if id(before) in settled or (spares is not None and spares(before)):
                kept.append(before)
                continue
            after = _apply_each(changes, before, tally)
            if after is not None:
                kept.append(after)
            if after is before:
                settled[id(before)] = before
        return kept

    return walk


def _apply_each(steps: list[tuple[str, Callable[[Span], Span | None]]], span: Span, tally: _Tally) -> Span | None:
    for name, change in steps:
        after = change(span)
        if after is not span and after != span:
            tally.note(name, span, after)
        if after is None:
            return None
        span = after
    return span


def _apply_whole(name: str, tally: _Tally, spans: list[Span], duration: float | None) -> list[Span]:
    step = STEPS[name]
    assert not isinstance(step, Each)
    answers = step(spans, duration)
    if answers is spans:
        return spans
    kept: list[Span] = []
    for before, after in zip(spans, answers, strict=True):
        if after is not before and after != before:
            tally.note(name, before, after)
        if after is not None:
            kept.append(after)
    return kept


def _show(span: Span) -> str:
    return f"{span.start:.3f} --> {span.end:.3f} {span.text}"


_PIECE = re.compile(r"\S+")


def _caption(span: Span, words: bool) -> Caption:
    return Caption(*span[:3], _words(span) if words and span.marks else ())


def _words(span: Span) -> tuple[Word, ...]:
    """Words at white space, and at marks inside text that is written without it (Chinese, Japanese, Thai)."""
    words: list[Word] = []
    marks = deque(span.marks)
    spaced = span.text.isascii()
    for piece in _PIECE.finditer(span.text):
        inner = [] if spaced else _inner_edges(span.text, marks, *piece.span())
        for begin, end in pairwise([piece.start(), *inner, piece.end()]):
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
