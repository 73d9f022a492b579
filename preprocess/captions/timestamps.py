"""Seconds from written times. Whole milliseconds are divided once, so 00:00:02.050 is the float 2.05."""

from __future__ import annotations

import re

# Hours may have any number of digits by the WebVTT specification; nine are 114,000 years.
_WEBVTT = r"(?:(?:([0-9]{1,9}):)?([0-5][0-9]):([0-5][0-9])|([0-9]{1,9}):([0-5][0-9]))\.([0-9]{3})(?![0-9])"
_SRT = r"(?:([0-9]{1,9}):)?([0-9]{1,2}):([0-9]{1,2})(?:[,.:]([0-9]{1,9}))?(?![0-9])"

WEBVTT_TIMESTAMP = re.compile(_WEBVTT)
WEBVTT_TIMINGS = re.compile(rf"[ \t\f]*{_WEBVTT}[ \t\f]*-->[ \t\f]*{_WEBVTT}")
SRT_TIMINGS = re.compile(rf"[ \t\f]*{_SRT}[ \t\f]*-{{1,2}}>[ \t\f]*{_SRT}")


def webvtt_seconds(groups: tuple[str | None, ...]) -> float | None:
    """The six groups of one WebVTT timestamp; None if it is none after all.

    `120:00.000` has two parts of which the first exceeds 59: the reference results of vtt.js take it as hours and
    minutes, the specification's current text refuses it. `010:00.000`, three digits for minutes, is refused by both.
    """
    hours, minutes, seconds, long_hours, long_minutes, fraction = groups
    if long_hours is not None:
        if int(long_hours) <= 59:
            return None
        hours, minutes, seconds = long_hours, long_minutes, "0"
    whole = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return (whole * 1000 + int(fraction or 0)) / 1000


def srt_seconds(groups: tuple[str | None, ...]) -> float | None:
    """The four groups of one SRT time (hours and fraction optional, a comma or a full stop between); None beyond 59."""
    hours, minutes, seconds, fraction = groups
    if int(minutes or 0) > 59 or int(seconds or 0) > 59:
        return None
    whole = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    digits = (fraction or "0")[:3].ljust(3, "0")
    return (whole * 1000 + int(digits)) / 1000
