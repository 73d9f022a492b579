"""Cut a cleaned track anew: by cue (as it is), by sentence, by pause, or by a maximum number of words.

All but `cue` join the text over cue borders and cut it between words. A word's time is the one the track gives; where
it gives none, the word is placed in its cue by the share of the letters before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from preprocess.captions.types import Caption, Word
from shared.config import Config

_SENTENCE_END = re.compile(r"[.!?…。！？]['\"”’)\]]*$")
_ABBREVIATION = re.compile(r"(?i)^(?:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|[a-z])\.$")
_WORD = re.compile(r"\S+")


class SegmentConfig(Config):
    """by: where to cut: `cue` leaves captions as they are, `sentence` cuts after sentences, `pause` at silence, `words`
    after `max_words`.

    max_words: never more words than this in a caption. pause: seconds of silence that always cut.

    With `by: cue` the other two are not used.
    """

    by: Literal["cue", "sentence", "pause", "words"] = "cue"
    max_words: int = Field(default=32, ge=1)
    pause: float = Field(default=1.0, ge=0, allow_inf_nan=False)


class _Piece:
    """A word on the time line: where it starts and, as far as its cue tells, where it ends."""

    __slots__ = ("end", "glued", "known", "start", "text")

    def __init__(self, text: str, start: float, end: float, known: bool, glued: bool) -> None:
        self.text, self.start, self.end, self.known, self.glued = text, start, end, known, glued


def segment(captions: Sequence[Caption], config: SegmentConfig) -> tuple[Caption, ...]:
    """The same words in the same order, cut as `config` says. Times stay within those of the captions they are from."""
    if config.by == "cue":
        return tuple(captions)
    ends_here = _ENDS[config.by]
    segments: list[Caption] = []
    current: list[_Piece] = []
    for caption in captions:
        for piece in _pieces(caption):
            if current and _must_cut(current, piece, config, ends_here):
                segments.append(_joined(current))
                current = []
            current.append(piece)
    if current:
        segments.append(_joined(current))
    return tuple(segments)


def _must_cut(
    current: list[_Piece], following: _Piece, config: SegmentConfig, ends_here: Callable[[str], bool]
) -> bool:
    last = current[-1]
    if len(current) >= config.max_words or following.start < last.start:
        return True
    return following.start - last.end > config.pause or (not following.glued and ends_here(last.text))


def _ends_sentence(word: str) -> bool:
    return _SENTENCE_END.search(word) is not None and _ABBREVIATION.match(word) is None


def _never(word: str) -> bool:
    del word
    return False


_ENDS: dict[str, Callable[[str], bool]] = {"sentence": _ends_sentence, "pause": _never, "words": _never}


def _pieces(caption: Caption) -> list[_Piece]:
    words = caption.words or tuple(Word(m.group(), None, m.start()) for m in _WORD.finditer(caption.text))
    starts = _starts(caption, words)
    pieces: list[_Piece] = []
    for at, word in enumerate(words):
        # A word lasts until the next one, or as long as it takes to say where timed words leave a gap.
        end = starts[at + 1] if at + 1 < len(words) else max(starts[at], caption.end)
        if at + 1 < len(words) and word.start is not None and words[at + 1].start is not None:
            end = min(end, starts[at] + _spoken_seconds(word.text))
        glued = word.offset > 0 and not caption.text[word.offset - 1].isspace()
        pieces.append(_Piece(word.text, starts[at], end, word.start is not None, glued))
    return pieces


def _spoken_seconds(word: str) -> float:
    """The longest that a word plausibly takes: a quarter of a second and a tenth per letter."""
    return 0.25 + 0.1 * len(word)


def _starts(caption: Caption, words: Sequence[Word]) -> list[float]:
    """A start for every word, never falling: known times as they are, others in between by their share of letters."""
    length = max(1, len(caption.text))
    anchors = [(word.offset, word.start) for word in words if word.start is not None]
    starts: list[float] = []
    before, time_before, passed = 0, caption.start, 0
    for word in words:
        if word.start is not None:
            passed += 1
            before, time_before = word.offset, max(time_before, word.start)
            starts.append(time_before)
            continue
        after, time_after = anchors[passed] if passed < len(anchors) else (length, caption.end)
        share = (word.offset - before) / max(1, after - before)
        starts.append(time_before + share * max(0.0, time_after - time_before))
    return starts


def _joined(pieces: list[_Piece]) -> Caption:
    text = ""
    words: list[Word] = []
    for piece in pieces:
        text += piece.text if piece.glued or not text else " " + piece.text
        words.append(Word(piece.text, piece.start if piece.known else None, len(text) - len(piece.text)))
    end = max(pieces[-1].end, pieces[-1].start)
    known = any(word.start is not None for word in words)
    return Caption(pieces[0].start, end, text, tuple(words) if known else ())
