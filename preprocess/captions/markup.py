"""Tags, inline timestamps and entities out of cue text.

WebVTT cue text (W3C, "WebVTT cue text tokenizer") and what SRT files carry: HTML tags, `{\\an8}` overrides. A `<` that
opens no tag stays: "1 < 2" is text.
"""

from __future__ import annotations

import html
import re
from collections import deque
from collections.abc import Sequence
from itertools import accumulate

from preprocess.captions.spans import Span, substitute
from preprocess.captions.timestamps import WEBVTT_TIMESTAMP, webvtt_seconds

_TAG = re.compile(
    r"<(?:(?P<time>[0-9:]{5,16}\.[0-9]{3})|(?P<gap>/?(?:br|p|div)\b)[^<>]*|/?[A-Za-z][^<>]*|/?)>"
    r"|</?(?:c|i|b|u|v|lang|ruby|rt|font|span)(?:[.\s][^<>]*)?\Z"
    r"|\{\\[^{}]*\}"
    r"|(?P<escape>\\[Nh])",
    re.IGNORECASE,
)
_MAY_HOLD = re.compile(r"[<\\]")
_STAMP = re.compile(r"<([0-9]{2}):([0-5][0-9]):([0-5][0-9])\.([0-9]{3})>")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


def strip_tags(spans: list[Span], duration: float | None) -> Sequence[Span | None]:
    """Tags go, without a gap where they are inside a word; inline timestamps become marks.

    In a track that times words, the first word of every cue is spoken when the cue starts.
    """
    del duration
    if not any("<" in span.text or "\\" in span.text for span in spans):
        return spans
    stripped = [(_only_stamps(span) or _strip(span)) if _MAY_HOLD.search(span.text) else span for span in spans]
    if not any(new.marks and not old.marks for old, new in zip(spans, stripped, strict=True)):
        return list(stripped)
    return [_with_first_mark(span) for span in stripped]


def strip_entities(span: Span) -> Span:
    """`&amp;`, `&#39;`, `&nbsp;`: only with their semicolon, so "AT&T" stays."""
    if "&" not in span.text:
        return span
    return substitute(span, _ENTITY, lambda match: html.unescape(match.group()))


def _only_stamps(span: Span) -> Span | None:
    """The span as `_strip` makes it, where it holds timestamps of the usual form and `<c>` alone; else None.

    Automatic captions time every word, so that nearly all the tags there are look like this.
    """
    if span.marks or "<c>" not in span.text:
        return None
    first, *rest = _STAMP.split(span.text.replace("<c>", "").replace("</c>", ""))
    texts = [first, *rest[4::5]]
    text = "".join(texts)
    if _MAY_HOLD.search(text):
        return None
    marks: list[tuple[int, float]] = []
    earliest = span.start
    parts = zip(accumulate(map(len, texts)), rest[::5], rest[1::5], rest[2::5], rest[3::5], strict=False)
    for length, hours, minutes, whole, thousandths in parts:
        seconds = ((int(hours) * 60 + int(minutes)) * 60_000 + int(whole) * 1000 + int(thousandths)) / 1000
        if earliest <= seconds <= span.end:
            marks.append((length, seconds))
            earliest = seconds
    return span.with_text(text, tuple(marks))


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
            _add_mark(marks, length, match["time"], span)
        elif match["gap"] or match["escape"]:
            pieces.append(" ")
            length += 1
    if not done:
        return span
    marks += [(length + offset - done, time) for offset, time in old]
    return span.with_text("".join(pieces) + span.text[done:], tuple(marks))


def _add_mark(marks: list[tuple[int, float]], offset: int, text: str, span: Span) -> None:
    """A stamp that lies outside its cue or goes back in time tells nothing."""
    match = WEBVTT_TIMESTAMP.fullmatch(text)
    seconds = webvtt_seconds(match.groups()) if match else None
    earliest = marks[-1][1] if marks else span.start
    if seconds is not None and earliest <= seconds <= span.end:
        marks.append((offset, seconds))


def _with_first_mark(span: Span) -> Span:
    first = len(span.text) - len(span.text.lstrip())
    if not span.text.strip() or (span.marks and span.marks[0][0] <= first):
        return span
    return span.with_text(span.text, ((first, span.start), *span.marks))
