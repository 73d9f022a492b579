"""Rolling captions to each spoken word once.

Automatic captions show a line again above the next one, and broadcast captions grow word by word, so that a plain join
says everything two or three times. What a cue *carries* over from the cue before it is cut off; the rest was said.
Two forms are told apart for the whole track, because a single repeated line may as well have been said twice:

lines   cues of several lines whose first lines are the last lines of the cue before
joined  cues of one line that starts with all, or the last pieces, of the cue before
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from preprocess.captions.spans import HOLD, Span
from preprocess.captions.timing import cut_overlaps

_TOUCHING = 0.1
_MOST_LINES = 16
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_WORD = re.compile(r"\S+")


class _Lines(NamedTuple):
    """The lines of a cue that hold text.

    keys: what they say; offsets: where in the cue; spoken: the first with a word spoken after the cue's start, which is
    no repeat, then (their number if none has); blank_top: whether a blank line stands above, to say nothing is carried.
    """

    keys: list[str]
    offsets: list[int]
    spoken: int
    blank_top: bool


def unroll(spans: list[Span], duration: float | None) -> Sequence[Span | None]:
    """Cut what each cue repeats of the one before; a cue with nothing new is gone. Other tracks come back unchanged."""
    del duration
    cuts = _cuts(spans)
    if cuts is None:
        return spans
    timed = any(span.marks for span in spans)
    # A line stays on screen while the next is spoken: what a cue adds ends where the next cue starts.
    spoken = [span for span in cut_overlaps(spans, None) if span is not None]
    return [_cut(span, at, timed) for span, at in zip(spoken, cuts, strict=True)]


def _cuts(spans: list[Span]) -> list[int] | None:
    """For every span, the offset at which its new text starts; None for a track that does not roll."""
    if any("\n" in span.text for span in spans) and _may_repeat_lines(spans):
        known: dict[str, str] = {}
        lines = [_lines(span, known) for span in spans]
        cuts = _line_cuts(spans, lines)
        if _rolls_by_lines(spans, lines, cuts):
            return cuts
    if _may_join(spans):
        cuts = _joined_cuts(spans)
        if _rolls_joined(spans, cuts):
            return cuts
    return None


def _may_repeat_lines(spans: list[Span]) -> bool:
    """Whether the first of several lines stands in the cue before: where none does, the exact look is not needed."""
    before = ""
    for span in spans:
        text = span.text
        if "\n" in text and _key(text.lstrip().partition("\n")[0]) in _key(before):
            return True
        if (text and not text.isspace()) if text.isascii() else _key(text):
            before = text
    return False


def _key(text: str) -> str:
    """What is said, whatever the white space and the characters that are never seen."""
    return " ".join((text if text.isascii() else _INVISIBLE.sub("", text)).split())


def _rolls_by_lines(spans: list[Span], lines: list[_Lines], cuts: list[int]) -> bool:
    several = carried = 0
    for span, own, at in zip(spans, lines, cuts, strict=True):
        if len(own.keys) > 1 and own.offsets[0] == 0:
            several += 1
            carried += 0 < at < len(span.text)
    return carried > 0 and carried * 2 >= several


def _may_join(spans: list[Span]) -> bool:
    """Whether any cue starts with all words of the one before: the first to grow does, and most tracks have none."""
    before, first = "", ""
    for span in spans:
        head = span.text.split(None, 1)[:1]
        if not head:
            continue
        if head[0] == first:
            words = before.split()
            if span.text.split()[: len(words)] == words:
                return True
        before, first = span.text, head[0]
    return False


def _rolls_joined(spans: list[Span], cuts: list[int]) -> bool:
    fresh = grown = 0
    for span, at in zip(spans, cuts, strict=True):
        if span.text.strip() and at < len(span.text):
            fresh += 1
            grown += at > 0
    return grown >= 3 and grown * 2 >= fresh


def _lines(span: Span, known: dict[str, str]) -> _Lines:
    """known: the keys of lines that were seen, to which it adds: most are shown more than once."""
    keys: list[str] = []
    offsets: list[int] = []
    ends: list[int] = []
    offset = 0
    blank_top = False
    for line in span.text.split("\n"):
        key = known.get(line)
        if key is None:
            key = known[line] = _key(line)
        if key:
            keys.append(key)
            offsets.append(offset)
            ends.append(offset + len(line))
        elif not offset:
            blank_top = not line.strip()
        offset += len(line) + 1
    return _Lines(keys, offsets, _first_spoken(span, offsets, ends), blank_top)


def _first_spoken(span: Span, offsets: list[int], ends: list[int]) -> int:
    for at, time in span.marks:
        if time > span.start:
            line = bisect_right(offsets, at) - 1
            if line >= 0 and at < ends[line]:
                return line
    return len(offsets)


def _line_cuts(spans: list[Span], lines_of: list[_Lines]) -> list[int]:
    """For every span, the offset at which its new text starts: the text's length where there is none."""
    cuts: list[int] = []
    shown: list[str] = []
    shown_until = float("-inf")
    for span, lines in zip(spans, lines_of, strict=True):
        count = _carried_lines(span, lines, shown, shown_until)
        cuts.append(lines.offsets[count] if 0 < count < len(lines.keys) else len(span.text) if count else 0)
        if lines.keys:
            shown, shown_until = lines.keys, span.end
    return cuts


def _carried_lines(span: Span, lines: _Lines, shown: list[str], shown_until: float) -> int:
    hold = span.end - span.start <= HOLD
    if lines.blank_top and not hold:
        return 0
    keys = lines.keys
    for count in range(min(lines.spoken, len(shown), _MOST_LINES), 0, -1):
        if shown[-count:] == keys[:count]:
            if count < len(keys) or hold:
                return count
            # All of it again. Two equal lines may have rolled by one; and after a pause a line is said again.
            rolled = count > 1 and shown[1 - count :] == keys[: count - 1]
            return count - 1 if rolled else count if span.start <= shown_until + _TOUCHING else 0
    return 0


def _joined_cuts(spans: list[Span]) -> list[int]:
    cuts: list[int] = []
    pieces: list[list[str]] = []
    shown_until = float("-inf")
    for span in spans:
        words = list(_WORD.finditer(span.text))
        spoken = next((at for at, time in span.marks if time > span.start), len(span.text))
        touching = span.start <= shown_until + _TOUCHING
        kept = _carried_pieces([word.group() for word in words], pieces) if touching else []
        count = sum(len(piece) for piece in kept)
        if count and words[count - 1].end() > spoken:
            kept, count = [], 0
        cuts.append(words[count].start() if 0 < count < len(words) else len(span.text) if count else 0)
        if words:
            new = [word.group() for word in words[count:]]
            pieces, shown_until = [*kept, new] if new else kept, span.end
    return cuts


def _carried_pieces(words: list[str], pieces: list[list[str]]) -> list[list[str]]:
    """The longest run of the last pieces that `words` starts with: all of them, or the last three, two or one."""
    for kept in (pieces, pieces[-3:], pieces[-2:], pieces[-1:]):
        flat = [word for piece in kept for word in piece]
        if flat and words[: len(flat)] == flat:
            return kept
    return []


def _cut(span: Span, at: int, timed: bool) -> Span | None:
    if not at:
        return span
    if at >= len(span.text):
        return None
    marks = tuple([(offset - at, time) for offset, time in span.marks if offset >= at])
    if timed and not (marks and marks[0][0] == 0):
        marks = ((0, span.start), *marks)
    return span.with_text(span.text[at:], marks)
