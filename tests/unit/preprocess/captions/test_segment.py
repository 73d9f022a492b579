"""Cutting anew keeps every word, its order and, where known, its time."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.captions.segment import SegmentConfig, segment
from preprocess.captions.types import Caption, Word


def texts(captions: list[Caption], **config: object) -> list[str]:
    return [c.text for c in segment(captions, SegmentConfig(**config))]  # type: ignore[arg-type]


CUES = [
    Caption(0.0, 2.0, "Heat the oven. Then"),
    Caption(2.0, 4.0, "slide the bread in,"),
    Caption(4.0, 5.0, 'said Dr. Oetker."'),
    Caption(8.0, 9.0, "Wait"),
]


def timed(start: float, end: float, *words: tuple[str, float | None]) -> Caption:
    text, known = "", []
    for word, time in words:
        text += f" {word}" if text else word
        known.append(Word(word, time, len(text) - len(word)))
    return Caption(start, end, text, tuple(known))


def test_by_cue_changes_nothing() -> None:
    assert segment(CUES, SegmentConfig()) == tuple(CUES)


def test_by_sentence() -> None:
    sentences = segment(CUES, SegmentConfig(by="sentence"))
    assert [c.text for c in sentences] == [
        "Heat the oven.",
        'Then slide the bread in, said Dr. Oetker."',
        "Wait",
    ]
    assert (sentences[0].start, sentences[1].end, sentences[2].start) == (0.0, 5.0, 8.0)
    # "Then" stands after 15 of the 19 letters of a cue of two seconds.
    assert sentences[0].end == sentences[1].start == 2.0 * 15 / 19


def test_by_words_and_by_pause() -> None:
    assert texts(CUES, by="words", max_words=6) == [
        "Heat the oven. Then slide the",
        'bread in, said Dr. Oetker."',
        "Wait",
    ]
    assert texts(CUES, by="pause", pause=2.0) == [
        'Heat the oven. Then slide the bread in, said Dr. Oetker."',
        "Wait",
    ]
    assert len(texts(CUES, by="pause", pause=3.0)) == 1


def test_known_word_times_are_used() -> None:
    caption = timed(0.0, 6.0, ("now", 0.0), ("go.", 1.0), ("and", 4.0), ("then", None), ("stop", 5.0))
    first, second = segment([caption], SegmentConfig(by="sentence"))
    assert (first.text, first.start, first.end) == ("now go.", 0.0, 1.55)
    assert (second.text, second.start, second.end) == ("and then stop", 4.0, 6.0)
    assert second.words == (Word("and", 4.0, 0), Word("then", None, 4), Word("stop", 5.0, 9))
    # The pause after "go." is 4.0 - 1.55 seconds.
    assert texts([caption], by="pause", pause=2.4) == ["now go.", "and then stop"]
    assert texts([caption], by="pause", pause=2.5) == ["now go. and then stop"]


def test_scripts_without_spaces_are_not_torn() -> None:
    caption = Caption(0.0, 3.0, "今日はパン", (Word("今日", 0.0, 0), Word("は", 1.0, 2), Word("パン", 2.0, 3)))
    assert segment([caption], SegmentConfig(by="pause"))[0] == caption


WORDS = st.lists(st.sampled_from(["a", "bb.", "ccc", "dd?", "e"]), min_size=1, max_size=6)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(WORDS, st.integers(0, 3000), st.integers(1, 3000)), max_size=6),
    st.sampled_from(["cue", "sentence", "pause", "words"]),
    st.integers(1, 5),
)
def test_the_same_words_within_the_same_times(raw: list[tuple[list[str], int, int]], by: str, max_words: int) -> None:
    captions, now = [], 0.0
    for words, gap, length in raw:
        start = now + gap / 1000
        now = start + length / 1000
        captions.append(Caption(start, now, " ".join(words)))
    segments = segment(captions, SegmentConfig(by=by, max_words=max_words))  # type: ignore[arg-type]
    assert [w for c in segments for w in c.text.split()] == [w for words, _, _ in raw for w in words]
    assert all(by == "cue" or len(c.text.split()) <= max_words for c in segments)
    bounds = [bound for c in segments for bound in (c.start, c.end)]
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(bounds))
    assert not captions or (bounds[0] == captions[0].start and bounds[-1] == captions[-1].end)
