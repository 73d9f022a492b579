"""Tags, inline timestamps and entities out of cue text.

WebVTT cue text (W3C, "WebVTT cue text tokenizer") and what SRT files carry: HTML tags, `{\\an8}` overrides. A `<` that
opens no tag stays: "1 < 2" is text.
"""

from __future__ import annotations

import html
import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice

import numpy as np

from preprocess.captions.spans import Span, substitute
from preprocess.captions.timestamps import WEBVTT_TIMESTAMP, webvtt_seconds

_TAG = re.compile(
    r"<(?:(?P<time>[0-9:]{5,16}\.[0-9]{3})|(?P<gap>/?(?:br|p|div)\b)[^<>]*|/?[A-Za-z][^<>]*|/?)>"
    r"|</?(?:c|i|b|u|v|lang|ruby|rt|font|span)(?:[.\s][^<>]*)?\Z"
    r"|\{\\[^{}]*\}"
    r"|(?P<escape>\\[Nh])",
    re.IGNORECASE,
)
_STAMP = re.compile(r"<([0-9]{2}:[0-5][0-9]:[0-5][0-9]\.[0-9]{3})>")
_MILLISECONDS = np.array([36_000_000, 3_600_000, 0, 600_000, 60_000, 0, 10_000, 1000, 0, 100, 10, 1])
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


def strip_tags(spans: list[Span], duration: float | None) -> Sequence[Span | None]:
    """Tags go, without a gap where they are inside a word; inline timestamps become marks.

    In a track that times words, the first word of every cue is spoken when the cue starts.
    """
    del duration
    if not _may_hold("\n".join([span.text for span in spans])):
        return spans
    cut = [_cut_at_stamps(span) for span in spans]
    moments = iter(_seconds([clock for one in cut if one is not None for clock in one[1::2]]))
    stripped = [
        (_strip(span) if _may_hold(span.text) else span) if one is None else _with_stamps(span, one, moments)
        for span, one in zip(spans, cut, strict=True)
    ]
    if not any(new.marks and not old.marks for old, new in zip(spans, stripped, strict=True)):
        return list(stripped)
    return [_with_first_mark(span) for span in stripped]


def _may_hold(text: str) -> bool:
    return "<" in text or "\\" in text


def has_no_entity(span: Span) -> bool:
    return "&" not in span.text


def strip_entities(span: Span) -> Span:
    """`&amp;`, `&#39;`, `&nbsp;`: only with their semicolon, so "AT&T" stays."""
    return substitute(span, _ENTITY, lambda match: html.unescape(match.group()))


def _cut_at_stamps(span: Span) -> list[str] | None:
    """Text, clock, text, clock, ... text of a cue with timestamps of the usual form and `<c>` alone; else None.

    Automatic captions time every word, so that nearly all the tags there are look like this: they are read in bulk, and
    `_with_stamps` makes of them what `_strip` would.
    """
    if "<c>" not in span.text or span.marks:
        return None
    parts = _STAMP.split(span.text.replace("<c>", "").replace("</c>", ""))
    return None if _may_hold("".join(parts[::2])) else parts


def _seconds(clocks: list[str]) -> list[float]:
    """Of clocks of twelve characters, HH:MM:SS.mmm."""
    digits_N12 = np.frombuffer("".join(clocks).encode(), np.uint8).reshape(-1, 12).astype(np.int64) - ord("0")
    seconds: list[float] = (digits_N12 @ _MILLISECONDS / 1000).tolist()
    return seconds


def _with_stamps(span: Span, parts: list[str], moments: Iterator[float]) -> Span:
    texts = parts[::2]
    offsets = accumulate(map(len, texts))
    seconds = list(islice(moments, len(texts) - 1))
    if seconds and span.start <= seconds[0] and seconds[-1] <= span.end and seconds == sorted(seconds):
        return span.with_text("".join(texts), tuple(zip(offsets, seconds, strict=False)))
    marks: list[tuple[int, float]] = []
    for offset, time in zip(offsets, seconds, strict=False):
        _add_mark(marks, offset, time, span)
    return span.with_text("".join(texts), tuple(marks))


def _strip(span: Span) -> Span:
    pieces: list[str] = []
    old = deque(span.marks)
    marks: list[tuple[int, float]] = []
    length = done = 0
    for match in _TAG.finditer(span.text):
        while old and old[0][0] < match.end():
            offset, time = old.popleft()
            marks.append((length + min(offset, match.start()) - done, time))
        pieces.append(span.text[done : match.start()])
        length += match.start() - done
        done = match.end()
        if match["time"]:
            _add_mark(marks, length, _written_seconds(match["time"]), span)
        elif match["gap"] or match["escape"]:
            pieces.append(" ")
            length += 1
    if not done:
        return span
    marks += [(length + offset - done, time) for offset, time in old]
    return span.with_text("".join(pieces) + span.text[done:], tuple(marks))


def _written_seconds(text: str) -> float | None:
    match = WEBVTT_TIMESTAMP.fullmatch(text)
    return webvtt_seconds(match.groups()) if match else None


def _add_mark(marks: list[tuple[int, float]], offset: int, time: float | None, span: Span) -> None:
    """A stamp that lies outside its cue or goes back in time tells nothing."""
    earliest = marks[-1][1] if marks else span.start
    if time is not None and earliest <= time <= span.end:
        marks.append((offset, time))


def _with_first_mark(span: Span) -> Span:
    text, marks = span.text, span.marks
    first = 0 if text[:1].strip() else len(text) - len(text.lstrip())
    if first == len(text) or (marks and marks[0][0] <= first):
        return span
    return span.with_text(text, ((first, span.start), *marks))
