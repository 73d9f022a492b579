"""Cues as the caption files that people have: WebVTT, SubRip, and YouTube's automatic captions in WebVTT.

In the automatic form a cue shows two lines: the line before, still visible, and the new one with a time tag before
each word but the first; between two such cues a hold cue of 10 ms shows the finished line alone. Whoever joins the
cues gets each word three times.
"""

from __future__ import annotations

from collections.abc import Callable

from demo.narration import Cue

LINE_CHARACTERS = 34  # a line of automatic captions is about this long
HOLD_SECONDS = 0.010


def webvtt(cues: list[Cue]) -> str:
    """WebVTT (W3C), one cue for each spoken line."""
    blocks = [f"{_stamp(cue.start)} --> {_stamp(cue.end)}\n{cue.text}\n" for cue in cues]
    return "\n".join(["WEBVTT\n", *blocks])


def subrip(cues: list[Cue]) -> str:
    """SubRip: numbered from 1, decimal comma."""
    blocks = [
        f"{number}\n{_stamp(cue.start, ',')} --> {_stamp(cue.end, ',')}\n{cue.text}\n"
        for number, cue in enumerate(cues, start=1)
    ]
    return "\n".join(blocks)


def rolling_webvtt(cues: list[Cue]) -> str:
    """WebVTT in the rolling form described above; the words keep the order and the times of `cues`."""
    blocks = ["WEBVTT\nKind: captions\nLanguage: en\n"]
    above = " "
    for cue in _short_lines(cues):
        words, last = cue.text.split(), round(cue.end - HOLD_SECONDS, 3)
        step = (last - cue.start) / len(words)
        tagged = [f"<{_stamp(cue.start + index * step)}><c> {word}</c>" for index, word in enumerate(words)]
        blocks.append(_auto_cue(cue.start, last, f"{above}\n{words[0]}{''.join(tagged[1:])}"))
        blocks.append(_auto_cue(last, cue.end, f"{cue.text}\n "))
        above = cue.text
    return "\n".join(blocks)


def _auto_cue(start: float, end: float, lines: str) -> str:
    return f"{_stamp(start)} --> {_stamp(end)} align:start position:0%\n{lines}\n"


def _short_lines(cues: list[Cue]) -> list[Cue]:
    """Cues broken into lines of about LINE_CHARACTERS, their time shared out by words."""
    lines: list[Cue] = []
    for cue in cues:
        words = cue.text.split()
        per_word = (cue.end - cue.start) / len(words)
        first = 0
        for index in range(1, len(words) + 1):
            full = index == len(words) or len(" ".join(words[first : index + 1])) > LINE_CHARACTERS
            if full:
                start, end = cue.start + first * per_word, cue.start + index * per_word
                lines.append(Cue(round(start, 3), round(end, 3), " ".join(words[first:index])))
                first = index
    return lines


def _stamp(seconds: float, decimal: str = ".") -> str:
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest // 1000:02d}{decimal}{rest % 1000:03d}"


FORMS: dict[str, tuple[str, Callable[[list[Cue]], str]]] = {
    "webvtt": (".en.vtt", webvtt),
    "subrip": (".en.srt", subrip),
    "rolling": (".en.vtt", rolling_webvtt),
}
FORM_ORDER = (
    "rolling",
    "subrip",
    "webvtt",
    "subrip",
)  # WebVTT and SubRip in turn, every other WebVTT file rolling
