"""Time steps of cleaning. All keep the order of the file; no cue gets longer but the twin of a dropped duplicate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import le

from preprocess.captions.spans import HOLD, Span


def repair_times(span: Span) -> Span | None:
    """Times that are no numbers: the cue goes. Start after end: swapped. Before zero: cut at zero."""
    if 0 <= span.start <= span.end < math.inf:
        return span
    if not (math.isfinite(span.start) and math.isfinite(span.end)):
        return None
    start, end = max(0.0, min(span.start, span.end)), max(0.0, span.start, span.end)
    return span if (start, end) == (span.start, span.end) else span.with_times(start, end)


def drop_zero_length(span: Span) -> Span | None:
    return span if span.end > span.start else None


def keep_inside(spans: list[Span], duration: float | None) -> Sequence[Span | None]:
    """What starts at or after the end of the video goes, cues and timed words; what only ends after it is cut there."""
    if duration is None or all(span.end <= duration for span in spans):
        return spans
    return [span if span.end <= duration else _cut_at(span, duration) for span in spans]


def drop_duplicates(spans: list[Span], duration: float | None) -> Sequence[Span | None]:
    """Drop a cue whose text and start were there before, that only holds the text of the one before on screen, or that
    overlaps the one before by more than half and says the same: that one then lasts to the later end.

    The same words in two cues that merely follow each other were said twice.
    """
    del duration
    if len({span.text for span in spans}) == len(spans):
        return spans
    kept: list[Span | None] = []
    seen: set[tuple[float, str]] = set()
    last = -1
    for at, span in enumerate(spans):
        before = kept[last] if last >= 0 else None
        if (span.start, span.text) in seen:
            kept.append(None)
        elif before is not None and span.text == before.text and _repeats(before, span):
            kept.append(None)
            kept[last] = before.with_times(before.start, max(before.end, span.end))
        else:
            kept.append(span)
            seen.add((span.start, span.text))
            last = at
    return kept


def cut_overlaps(spans: list[Span], duration: float | None) -> Sequence[Span | None]:
    """A cue ends where the next that starts later begins, not before its last timed word; equal starts may overlap."""
    del duration
    if all(map(le, [span.end for span in spans], [span.start for span in spans[1:]])):
        return spans
    cut: list[Span | None] = list(spans)
    later: float | None = None
    for at in range(len(spans) - 2, -1, -1):
        span, following = spans[at], spans[at + 1]
        if following.start != span.start:
            later = following.start if following.start > span.start else None
        if later is None or later >= span.end:
            continue
        end = max(later, span.marks[-1][1]) if span.marks else later
        if span.start < end < span.end:
            cut[at] = span.with_times(span.start, end)
    return cut


def _repeats(before: Span, span: Span) -> bool:
    if span.start < before.start:
        return False
    if span.end - span.start <= HOLD:
        return span.start <= before.end + HOLD
    shared = min(before.end, span.end) - span.start
    return 2 * shared > min(before.end - before.start, span.end - span.start)


def _cut_at(span: Span, duration: float) -> Span | None:
    if span.start >= duration:
        return None
    late = next((offset for offset, time in span.marks if time >= duration), None)
    if late is None:
        return span.with_times(span.start, duration)
    text = span.text[:late].rstrip()
    return Span(span.start, duration, text, tuple(mark for mark in span.marks if mark[0] < late)) if text else None
