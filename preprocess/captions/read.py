"""Bytes of a caption file to cues: decode, find the format from the content (then from the name), parse.

One malformed cue costs that cue; only a file that holds no captions at all is a failure.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from preprocess.captions import csv_track, json_track, plain_text, srt, vtt
from preprocess.captions.types import CaptionTrack, Format
from shared.errors import Failure

_PARSERS: dict[Format, Any] = {
    "webvtt": vtt.parse_webvtt,
    "srt": srt.parse_srt,
    "csv": csv_track.parse_csv,
    "json": json_track.parse_json,
    "txt": plain_text.parse_plain,
}


def read_track(data: bytes, name: str) -> CaptionTrack | Failure:
    """Parse one caption file. `name` is its file name; its extension counts where the content does not tell.

    What is in none of the formats is, under the name `.txt`, one caption of the whole file.

    Failure reasons: `empty_file`, `not_captions` (no known format, or one that holds no timing line at all).
    Sources: WebVTT, W3C Candidate Recommendation 2019; SRT as found; CSV as RFC 4180 with a header; JSON as
    HowTo100M has it for each video.
    """
    text = decode_text(data)
    if not text.strip():
        return Failure("empty_file", "captions", f"{name}: the file is empty")
    kind = _sniff(text, name)
    if kind is None:
        return Failure("not_captions", "captions", f"{name}: {_expectation(text, name)}")
    cues, skipped = _PARSERS[kind](text)
    if kind == "srt" and not cues:
        return Failure("not_captions", "captions", f"{name}: no SRT timing line in {len(data)} bytes")
    return CaptionTrack(kind, tuple(cues), tuple(skipped))


def decode_text(data: bytes) -> str:
    """Text with `\\n` line breaks and without byte order mark; NUL becomes U+FFFD as WebVTT says.

    UTF-16 where its mark says so; UTF-8 otherwise, bad bytes as U+FFFD; Windows-1252 where more characters are bad
    UTF-8 than good non-ASCII (old SRT files), which WebVTT, always UTF-8, never is.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", errors="replace")
    else:
        text = _decode_bytes(data)
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def _decode_bytes(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", errors="replace")
    bad = text.count("\ufffd")
    good = sum(char > "\x7f" for char in text) - bad
    if bad <= good or vtt.has_signature(text.removeprefix("\ufeff")):
        return text
    return data.decode("cp1252", errors="replace")


def _sniff(text: str, name: str) -> Format | None:
    if vtt.has_signature(text):
        return "webvtt"
    if csv_track.has_header(text):
        return "csv"
    if json_track.has_lists(text):
        return "json"
    if srt.certainly_srt(text):
        return "srt"
    suffix = PurePosixPath(name).suffix.lower()
    if suffix == ".txt":
        return None if plain_text.fault_of(text) else "txt"
    return "srt" if suffix == ".srt" else None


def _expectation(text: str, name: str) -> str:
    suffix = PurePosixPath(name).suffix.lower()
    if suffix == ".txt":
        return plain_text.fault_of(text)
    if suffix == ".vtt":
        return "does not start with WEBVTT, as every WebVTT file must"
    if suffix == ".csv":
        return f"its first line does not name the columns {', '.join(csv_track.COLUMNS)}"
    if suffix == ".json":
        return f"is no JSON object with the lists {', '.join(json_track.KEYS)}"
    return (
        "neither WebVTT, SRT, CSV with the columns start,end,text nor JSON with lists of these names; "
        "a text for the whole file is named .txt"
    )
