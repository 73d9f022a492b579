"""A text without times: one caption for the whole file, as img2dataset writes it beside each image."""

from __future__ import annotations

from preprocess.captions.types import Cue

# A caption of the whole clip, whose length the text does not state: cleaning (step `beyond_end`) cuts it at the end.
WHOLE = 86_400.0

# No caption is longer; and CSV readers refuse fields from 128 KiB on.
LONGEST = 100_000


def fault_of(text: str) -> str:
    """Why a text is no caption of a whole file; empty where it is one."""
    if "-->" in text:
        return "has arrows as between times, but is neither WebVTT nor SRT"
    words = len(" ".join(text.split()))
    return f"is a text of {words} characters, expected at most {LONGEST}" if words > LONGEST else ""


def parse_plain(text: str) -> tuple[list[Cue], list[tuple[int, str]]]:
    """One cue from 0 s on, on one line; nothing is skipped."""
    return [Cue(0.0, WHOLE, " ".join(text.split()))], []
