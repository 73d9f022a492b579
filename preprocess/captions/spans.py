"""What cleaning steps work on: a cue's text with the places in it whose time is known."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

HOLD = 0.05
"""Seconds: a cue this short is no speech; it only keeps a line on screen."""

Marks = tuple[tuple[int, float], ...]
"""(offset in the text, second at which what stands there is spoken), offsets rising."""


class Span(NamedTuple):
    """One cue between two steps. A step answers with one span for each it got, or None where the cue is gone."""

    start: float
    end: float
    text: str
    marks: Marks = ()

    def with_text(self, text: str, marks: Marks) -> Span:
        return Span(self.start, self.end, text, marks)

    def with_times(self, start: float, end: float) -> Span:
        return Span(start, end, self.text, self.marks)


Whole = Callable[[list[Span], float | None], Sequence[Span | None]]
"""A step that looks at a whole track: spans and the video's duration (None: unknown) -> one answer per span.

The list itself is the answer where nothing changes.
"""


@dataclass(frozen=True, slots=True)
class Each:
    """A step that looks at one span at a time, and at nothing else: what it leaves once, it leaves always.

    spares: a quick look at what the step is sure to leave as it is.
    """

    change: Callable[[Span], Span | None]
    spares: Callable[[Span], bool]


Step = Whole | Each

_NOT_PLAIN = re.compile(r"[^ !-')+-9;-=?-Z\\-~]|  | \Z")


def is_plain(span: Span) -> bool:
    """A letter or digit, then printable ASCII without `(`, `*`, `:`, `>` and `[`, and with single spaces only.

    Of text like this, the steps for mojibake, Unicode, sounds, speakers, white space and empty cues change nothing.
    """
    return span.text[:1].isalnum() and not _NOT_PLAIN.search(span.text)


def is_ordered(span: Span) -> bool:
    """Starts at zero or later, and ends later still."""
    return 0 <= span.start < span.end < math.inf


def substitute(span: Span, pattern: re.Pattern[str], new: Callable[[re.Match[str]], str], timed: bool = False) -> Span:
    """Replace every match by `new(match)`, moving the marks along.

    A mark inside a match moves behind the replacement. With `timed` the match is something that was *heard*, so a mark
    inside it or right before it is its own time and goes with it, instead of passing to the next word.
    """
    if not span.marks:
        text = pattern.sub(new, span.text)
        return span if text == span.text else span.with_text(text, ())
    pieces: list[str] = []
    marks: list[tuple[int, float]] = []
    pending = deque(span.marks)
    length = done = 0
    for match in pattern.finditer(span.text):
        replacement = new(match)
        if replacement == match.group():
            continue
        begin, end = match.span()
        while pending and pending[0][0] < end:
            offset, time = pending.popleft()
            if timed and not span.text[offset:begin].strip():
                continue
            inside = offset > begin or (offset == begin and not replacement)
            marks.append((length + begin - done + len(replacement) if inside else length + offset - done, time))
        pieces += (span.text[done:begin], replacement)
        length += begin - done + len(replacement)
        done = end
    if not pieces:
        return span
    marks += [(length + offset - done, time) for offset, time in pending]
    return span.with_text("".join(pieces) + span.text[done:], tuple(marks))


def rewrite(span: Span, change: Callable[[str], str]) -> Span:
    """Apply a change that keeps no offsets: mark by mark, or to the whole if that differs, without marks."""
    text = change(span.text)
    if text == span.text:
        return span
    edges = [0, *(offset for offset, _ in span.marks), len(span.text)]
    pieces = [change(span.text[a:b]) for a, b in pairwise(edges)]
    if "".join(pieces) != text:
        return span.with_text(text, ())
    marks, length = [], 0
    for piece, (_, time) in zip(pieces, span.marks, strict=False):
        length += len(piece)
        marks.append((length, time))
    return span.with_text(text, tuple(marks))
