"""Rolling captions written from known words, in the forms that are found, give those words back with their times."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from preprocess.captions.clean import CleanConfig, clean
from preprocess.captions.types import Cue

Line = list[tuple[str, float]]


@st.composite
def narrations(draw: st.DrawFn) -> list[Line]:
    """Lines of timed words, two of them said over and over."""
    words = st.sampled_from(["yes", "the", "oven", "door", "slide", "bread", "crust", "cloth"])
    lines: list[Line] = []
    now = 240
    for size in draw(st.lists(st.integers(1, 6), min_size=3, max_size=10)):
        line: Line = []
        for _ in range(size):
            line.append((draw(words), now / 1000))
            now += draw(st.integers(80, 480))
        now += 10
        lines.append(line)
    # Lines that go on as the line before, again and again, may as well be one caption that grows word by word.
    texts = [[word for word, _ in line] for line in lines]
    assume(sum(text[: len(before)] == before for before, text in pairwise(texts)) < 3)
    return lines


def stamp(seconds: float) -> str:
    milliseconds = round(seconds * 1000)
    return f"00:{milliseconds // 60000:02d}:{milliseconds // 1000 % 60:02d}.{milliseconds % 1000:03d}"


def tagged(line: Line, before: str = "<c>", after: str = "</c>") -> str:
    return line[0][0] + "".join(f"<{stamp(time)}>{before} {word}{after}" for word, time in line[1:])


def plain(line: Line) -> str:
    return " ".join(word for word, _ in line)


def ends(lines: list[Line]) -> list[float]:
    return [following[0][1] - 0.01 for following in lines[1:]] + [lines[-1][-1][1] + 0.4]


def with_holds(lines: list[Line]) -> list[Cue]:
    """The form of automatic WebVTT captions: new line below the old one, then 10 ms of the new line alone on top."""
    cues: list[Cue] = []
    above = " "
    for line, end in zip(lines, ends(lines), strict=True):
        cues += [
            Cue(line[0][1], end, f"{above}\n{tagged(line)}"),
            Cue(end, round(end + 0.01, 3), f"{plain(line)}\n "),
        ]
        above = plain(line)
    return cues


def with_colours(lines: list[Line]) -> list[Cue]:
    cues, above = [], " "
    for line, end in zip(lines, ends(lines), strict=True):
        text = tagged(line, "<c.colorE5E5E5>", "</c>")
        cues.append(Cue(line[0][1], end, f"<c.colorCCCCCC>{above}</c>\n{text}"))
        above = plain(line)
    return cues


def cleared_between(lines: list[Line]) -> list[Cue]:
    """The screen is emptied after every cue, so nothing is carried, as after a pause."""
    cues: list[Cue] = []
    for line, end in zip(lines, ends(lines), strict=True):
        cues += [Cue(line[0][1], end, f" \n{tagged(line)}"), Cue(end, round(end + 0.01, 3), " \n ")]
    return cues


def three_lines(lines: list[Line]) -> list[Cue]:
    return [
        Cue(
            line[0][1],
            ends(lines)[at],
            "\n".join([*(plain(old) for old in lines[max(0, at - 2) : at]), tagged(line)]),
        )
        for at, line in enumerate(lines)
    ]


FORMS: list[Callable[[list[Line]], list[Cue]]] = [with_holds, with_colours, cleared_between, three_lines]


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=150, deadline=None)
@given(lines=narrations())
def test_every_word_once_at_its_time(form: Callable[[list[Line]], list[Cue]], lines: list[Line]) -> None:
    # The case of a track whose lines all have one word: nothing in it is timed but by its cues.
    captions = clean(form(lines), None, CleanConfig()).captions
    assert [word for c in captions for word in c.text.split()] == [word for line in lines for word, _ in line]
    if any(len(line) > 1 for line in lines):
        assert [(w.text, w.start) for c in captions for w in c.words] == [word for line in lines for word in line]


LINES = ["today we are", "going to open", "the oven", "the oven", "door", "yes", "yes", "it is hot"]


def said(cues: list[Cue]) -> list[tuple[float, str]]:
    return [(c.start, c.text) for c in clean(cues, None, CleanConfig()).captions]


def test_two_lines_without_tags_as_srt_has_them() -> None:
    cues = [Cue(0.0, 2.0, LINES[0])]
    cues += [Cue(2.0 * at, 2.0 * at + 2, f"{LINES[at - 1]}\n{LINES[at]}") for at in range(1, len(LINES))]
    assert said(cues) == [(2.0 * at, line) for at, line in enumerate(LINES)]


def test_overlapping_display_of_two_lines() -> None:
    cues = [Cue(0.0, 4.0, LINES[0])]
    cues += [Cue(2.0 * at, 2.0 * at + 4, f"{LINES[at - 1]}\n{LINES[at]}") for at in range(1, len(LINES))]
    result = clean(cues, None, CleanConfig()).captions
    assert [(c.start, c.end) for c in result[:-1]] == [(2.0 * at, 2.0 * at + 2) for at in range(len(LINES) - 1)]


def test_two_new_lines_at_once() -> None:
    cues = [Cue(0, 2, "a b\nc d"), Cue(2, 4, "c d\ne f"), Cue(4, 6, "e f\ng h\ni j"), Cue(6, 8, "i j\nk")]
    assert said(cues) == [(0, "a b c d"), (2, "e f"), (4, "g h i j"), (6, "k")]


def test_lines_joined_into_one() -> None:
    cues = [Cue(0.0, 2.0, LINES[0]), Cue(2.0, 2.01, LINES[0])]
    cues += [Cue(2.01 * at, 2.01 * at + 2.01, f"{LINES[at - 1]} {LINES[at]}") for at in range(1, len(LINES))]
    assert [text for _, text in said(cues)] == LINES


def test_captions_that_grow_word_by_word() -> None:
    words = ["we", "slide", "the", "bread", "in", "and", "wait"]
    cues = [Cue(0.5 * at, 0.5 * at + 0.5, " ".join(words[: at + 1])) for at in range(len(words))]
    assert said(cues) == [(0.5 * at, word) for at, word in enumerate(words)]


def test_the_same_words_in_ordinary_cues_are_said_twice() -> None:
    cues = [Cue(0, 1, "yes"), Cue(1, 2, "yes"), Cue(2, 3, "yes it is"), Cue(3, 4, "it is\nhot"), Cue(4, 5, "now\ngo")]
    assert [text for _, text in said(cues)] == ["yes", "yes", "yes it is", "it is hot", "now go"]


def test_a_repeat_after_a_pause_was_said_again() -> None:
    cues = [Cue(0, 2, "a b"), Cue(2, 4, "a b\nc d"), Cue(9, 11, "c d"), Cue(11, 13, "c d\ne f")]
    assert said(cues) == [(0, "a b"), (2, "c d"), (9, "c d"), (11, "e f")]


def test_below_a_blank_line_everything_is_new() -> None:
    cues = [Cue(0, 2, " \na b"), Cue(2, 2.01, "a b\n "), Cue(2.01, 4, "a b\nyes"), Cue(4, 5, " \nyes")]
    assert said(cues) == [(0, "a b"), (2.01, "yes"), (4, "yes")]


def test_a_mark_between_words_takes_its_time_along() -> None:
    cue = Cue(1.0, 4.0, "in<00:00:01.500><c> [Music]</c><00:00:02.000><c> then</c>")
    (caption,) = clean([cue], None, CleanConfig()).captions
    assert [(w.text, w.start) for w in caption.words] == [("in", 1.0), ("then", 2.0)]
    cue = Cue(1.0, 4.0, "in<00:00:01.500><c> [Music] then</c>")
    (caption,) = clean([cue], None, CleanConfig()).captions
    assert [(w.text, w.start) for w in caption.words] == [("in", 1.0), ("then", None)]


def test_stamps_outside_the_cue_or_backwards_tell_nothing() -> None:
    cue = Cue(1.0, 4.0, "a<00:00:00.500> b<00:00:03.000> c<00:00:02.000> d<00:00:09.000> e")
    (caption,) = clean([cue], None, CleanConfig()).captions
    assert [(w.text, w.start) for w in caption.words] == [("a", 1.0), ("b", None), ("c", 3.0), ("d", None), ("e", None)]


def test_words_of_scripts_without_spaces() -> None:
    cue = Cue(0.0, 3.0, "今日<00:00:01.000><c>は</c><00:00:02.000><c>パン</c>")
    (caption,) = clean([cue], None, CleanConfig()).captions
    assert caption.text == "今日はパン"
    assert [(w.text, w.start, w.offset) for w in caption.words] == [("今日", 0.0, 0), ("は", 1.0, 2), ("パン", 2.0, 3)]
