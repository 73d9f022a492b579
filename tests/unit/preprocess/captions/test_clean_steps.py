"""Each cleaning step on the cases it is for."""

from __future__ import annotations

import math

import pytest

from preprocess.captions import markup, timing
from preprocess.captions.clean import STEPS, CleanConfig, clean
from preprocess.captions.spans import Each, Span, is_ordered, is_plain
from preprocess.captions.types import Cue


def text(raw: str, **steps: bool) -> str:
    return " | ".join(c.text for c in clean([Cue(0.0, 10.0, raw)], None, CleanConfig(**steps)).captions)


@pytest.mark.parametrize(
    ("raw", "clean_text"),
    [
        ("<v Roger Bingham>We are <i>in</i> New York", "We are in New York"),
        ('<font color="#ff0000">hot</font><br/>pan', "hot pan"),
        ("<c.colorE5E5E5>wor</c><c>ld</c>", "world"),
        ("{\\an8}{\\i1}top\\Nbottom", "top bottom"),
        ("a <b>b</b> <c.colo", "a b"),
        ("1 < 2 and 3 > 2, i <3 you", "1 < 2 and 3 > 2, i <3 you"),
        ("salt &amp; pepper &#39;n&#x27; oil&nbsp;&lt;i&gt;now&lt;/i&gt;", "salt & pepper 'n' oil now"),
        ("R&B at AT&T &unknown; &copy", "R&B at AT&T &unknown; &copy"),
        ("cafÃ© naÃ¯ve", "café naïve"),
        ("cafe\u0301", "café"),
        ("a\u200bb\u00a0c\ufeff d\u00ade\x07f", "a b c de f"),
        ("[Music] we [ Evening Stroll\nmusic ] bake [\u00a0__\u00a0]", "we bake"),
        ("(screen whooshes)", ""),
        ("- (applause)", ""),
        ("mix (laughs) well (or badly)", "mix well (or badly)"),
        ("*sighs* fine, 2 * 3 * 4", "fine, 2 * 3 * 4"),
        ("♪ la la ♪", "la la"),
        (">> hello >> JOHN: hi\n>>> you", "hello hi you"),
        ("- Hello.\n- Hi.", "Hello. Hi."),
        ("-5 degrees - cold", "-5 degrees - cold"),
        ("NAR: This is it", "This is it"),
        ("SPEAKER 2: well", "well"),
        ("Narrator: once", "once"),
        ("STEP ONE: MIX", "STEP ONE: MIX"),
        ("at 10:30: go", "at 10:30: go"),
        (" \t a \n\n b ", "a b"),
        ("...", ""),
        ("日本", "日本"),
    ],
)
def test_text(raw: str, clean_text: str) -> None:
    assert text(raw) == clean_text


def test_every_step_can_be_left_out() -> None:
    raw = "<i>a</i> &amp; [Music]\n>> cafÃ©"
    assert text(raw, tags=False) == "<i>a</i> & cafÃ©".replace("cafÃ©", "café")
    assert text(raw, entities=False) == "a &amp; café"
    assert text(raw, sounds=False) == "a & [Music] café"
    assert text(raw, speakers=False) == "a & >> café"
    assert text(raw, mojibake=False) == "a & cafÃ©"
    assert text("a\n b", whitespace=False) == "a\n b"
    assert text("cafe\u0301", unicode=False) == "cafe\u0301"
    assert text("?!", empty=False) == "?!"


def times(cues: list[Cue], duration: float | None = None) -> list[tuple[float, float, str]]:
    return [(c.start, c.end, c.text) for c in clean(cues, duration, CleanConfig()).captions]


def test_broken_times() -> None:
    cues = [
        Cue(-2.0, 1.0, "a"),
        Cue(3.0, 2.0, "b"),
        Cue(4.0, 4.0, "c"),
        Cue(math.nan, 5.0, "d"),
        Cue(5.0, math.inf, "e"),
        Cue(-3.0, -1.0, "f"),
        Cue(6.0, 7.0, "g"),
    ]
    assert times(cues) == [(0.0, 1.0, "a"), (2.0, 3.0, "b"), (6.0, 7.0, "g")]


def test_beyond_the_end() -> None:
    cues = [Cue(1.0, 2.0, "a"), Cue(2.0, 9.0, "b <00:03.000>c <00:05.000>d"), Cue(5.0, 6.0, "e"), Cue(8.0, 9.0, "f")]
    assert times(cues, 5.0) == [(1.0, 2.0, "a"), (2.0, 5.0, "b c")]
    assert times([Cue(0.0, 9.0, "<00:05.000>a")], 5.0) == []
    counts = clean(cues, 5.0, CleanConfig()).counts
    assert (counts["beyond_end"], counts["times"], counts["zero_length"]) == (3, 0, 0)


def test_duplicates() -> None:
    same = [Cue(0.0, 2.0, "a"), Cue(0.0, 2.0, "a"), Cue(0.5, 3.0, "a"), Cue(3.0, 3.02, "a"), Cue(3.02, 5.0, "a")]
    assert times(same) == [(0.0, 3.02, "a"), (3.02, 5.0, "a")]
    again = [Cue(0.0, 2.0, "a"), Cue(4.0, 5.0, "b"), Cue(0.0, 2.0, "a")]
    assert times(again) == [(0.0, 2.0, "a"), (4.0, 5.0, "b")]


def test_overlaps() -> None:
    cues = [Cue(0.0, 5.0, "a"), Cue(0.0, 4.0, "b"), Cue(2.0, 6.0, "c"), Cue(1.0, 3.0, "d"), Cue(2.5, 4.0, "e")]
    assert times(cues) == [(0.0, 2.0, "a"), (0.0, 2.0, "b"), (2.0, 6.0, "c"), (1.0, 2.5, "d"), (2.5, 4.0, "e")]


def test_a_cue_lasts_until_its_last_timed_word() -> None:
    cues = [Cue(0.0, 5.0, "a <00:04.000>b"), Cue(3.0, 6.0, "c")]
    assert times(cues) == [(0.0, 4.0, "a b"), (3.0, 6.0, "c")]


def test_counts_and_examples() -> None:
    cues = [Cue(float(at), at + 1.0, f"<i>w{at}</i>") for at in range(5)] + [Cue(9.0, 10.0, "[Music]")]
    result = clean(cues, None, CleanConfig(examples=2))
    assert {step: count for step, count in result.counts.items() if count} == {
        "tags": 5,
        "sounds": 1,
        "whitespace": 1,
        "empty": 1,
    }
    assert result.examples["tags"] == (
        ("0.000 --> 1.000 <i>w0</i>", "0.000 --> 1.000 w0"),
        ("1.000 --> 2.000 <i>w1</i>", "1.000 --> 2.000 w1"),
    )
    assert result.examples["empty"] == (("9.000 --> 10.000 ", ""),)


def test_an_example_shows_what_changed() -> None:
    """A time that moved by less than is printed is counted, and no example of anything."""
    cues = [Cue(0.0, 10.0000002, "just past"), Cue(2.0, 13.0, "well past")]
    result = clean(cues, 10.0, CleanConfig(examples=1, overlaps=False))
    assert result.counts["beyond_end"] == 2
    assert result.examples["beyond_end"] == (("2.000 --> 13.000 well past", "2.000 --> 10.000 well past"),)


PLAIN = [
    "open the oven",
    "Add 2 eggs, don't stir. Why? Now!",
    "a",
    '7 "eggs" & 50% <b - {x} /y\\ ]) #1 @home; a=b_~`|^$+',
]


@pytest.mark.parametrize("text", PLAIN)
def test_every_step_that_is_spared_plain_text_would_leave_it(text: str) -> None:
    span = Span(0.0, 1.0, text)
    assert is_plain(span)
    spared = [step for step in STEPS.values() if isinstance(step, Each) and step.spares is is_plain]
    assert len(spared) == 6
    assert [step.change(span) for step in spared] == [span] * 6


@pytest.mark.parametrize(
    "text",
    ["", " a", "a ", "a  b", "-a", "a:", "a>", ">a", "[a]", "(a", "é", "a\nb", "a\tb", "a*b*", "a\u200b", "a\x7f"],
)
def test_what_a_step_may_change_is_not_plain(text: str) -> None:
    assert not is_plain(Span(0.0, 1.0, text))


@pytest.mark.parametrize(("start", "end"), [(-1.0, 1.0), (2.0, 1.0), (1.0, 1.0), (0.0, math.inf), (math.nan, 1.0)])
def test_what_a_step_may_change_is_not_in_order(start: float, end: float) -> None:
    assert is_ordered(Span(0.0, 1.0, ""))
    assert not is_ordered(Span(start, end, ""))


def short_way(span: Span) -> Span | None:
    parts = markup._cut_at_stamps(span)
    return None if parts is None else markup._with_stamps(span, parts, iter(markup._seconds(parts[1::2])))


@pytest.mark.parametrize(
    "text",
    [
        "open<00:00:01.000><c> the</c><00:00:02.000><c> oven</c>",
        "open<00:00:09.000><c> late</c><00:00:00.000><c> early</c>",
        "<00:00:01.500><c>open</c>\n<c> </c>",
        "a <c>b</c>",
        "back<00:00:02.000><c> and</c><00:00:01.000><c> forth</c>",
        "a<00:00:00.100><c> before</c><00:00:01.000><c> it</c>",
        "a<00:00:01.000><c> and</c><00:00:09.000><c> after</c>",
    ],
)
def test_the_short_way_for_word_times_is_the_long_one(text: str) -> None:
    span = Span(0.5, 4.0, text)
    assert short_way(span) == markup._strip(span)


def test_a_track_of_both_ways_keeps_each_time_with_its_word() -> None:
    spans = [
        Span(0.0, 4.0, "a<00:00:01.000><c> b</c>"),
        Span(4.0, 8.0, "c<00:00:05.000><i> d</i>"),
        Span(8.0, 12.0, "e"),
        Span(36_000.0, 36_010.0, "f<10:00:01.234><c> g</c><10:00:02.345><c> h</c>"),
    ]
    assert [span.marks if span else None for span in markup.strip_tags(spans, None)] == [
        ((0, 0.0), (1, 1.0)),
        ((0, 4.0), (1, 5.0)),
        ((0, 8.0),),
        ((0, 36_000.0), (1, 36_001.234), (3, 36_002.345)),
    ]


@pytest.mark.parametrize("text", ["a<00:00:01.000> b", "a <c><i>b</i></c>", "a <c>\\h b</c>", "<c>x<00:99:01.000></c>"])
def test_the_short_way_is_for_usual_word_times_alone(text: str) -> None:
    assert short_way(Span(0.0, 4.0, text)) is None


def test_the_same_text_at_another_start_may_be_a_duplicate() -> None:
    spans = [Span(0.0, 2.0, "a b"), Span(0.5, 2.5, "a b"), Span(2.5, 3.0, "a b"), Span(3.0, 4.0, "c")]
    assert timing.drop_duplicates(spans, None) == [Span(0.0, 2.5, "a b"), None, *spans[2:]]
    assert timing.drop_duplicates(spans[1:2] + spans[3:], None) == spans[1:2] + spans[3:]
