"""Numbers for people: counts with their noun, lengths of video, speeds."""

from __future__ import annotations

_MINUTE, _HOUR = 60.0, 3600.0


def counted(count: int, noun: str) -> str:
    """`1 video`, `2 videos`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration_words(seconds: float) -> str:
    """A length of video in the unit that fits it: `42 s`, `8 min`, `1.5 h`, `134,472 h`."""
    if seconds < _MINUTE:
        return f"{seconds:.3g} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.3g} min"
    hours = seconds / _HOUR
    return f"{hours:.4g} h" if hours < 1000 else f"{hours:,.0f} h"


def speed_words(seconds: float, wall_s: float) -> str:
    """How fast so many seconds of video went in `wall_s` seconds: in hours a second, or times real time under one."""
    times = seconds / wall_s if wall_s else 0.0
    return f"{times / _HOUR:.3g} h of video a second" if times >= _HOUR else f"{times:.3g} x real time"
