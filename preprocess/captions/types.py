"""What captions are on their way from a file to a window: cues as written, captions as cleaned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Format = Literal["webvtt", "srt", "csv", "json", "txt"]


# Millions of these are made one by one: a NamedTuple costs less than half of a frozen dataclass.
class Cue(NamedTuple):
    """One cue as the file has it. start, end: seconds; text: markup and line breaks still in it."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class CaptionTrack:
    """One parsed caption file.

    cues: in the order of the file. skipped: (line number from 1, why) of all that should have been a cue and was
    not; JSON has the cue's number for the line's.
    """

    format: Format
    cues: tuple[Cue, ...]
    skipped: tuple[tuple[int, str], ...]


class Word(NamedTuple):
    """A word of a caption. offset: where it stands in the caption's text; start: the second it is spoken, if known."""

    text: str
    start: float | None
    offset: int


class Caption(NamedTuple):
    """One cleaned caption. start, end: seconds; words: all of them when the track times words, otherwise empty."""

    start: float
    end: float
    text: str
    words: tuple[Word, ...] = ()
