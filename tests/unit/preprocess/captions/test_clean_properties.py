"""What cleaning promises for any input: no invented word, no changed order, times inside the video, idempotence."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.captions.clean import CleanConfig, clean
from preprocess.captions.types import Caption, Cue

WORDS = ("open", "the", "oven", "door", "yes", "café", "naïve", "10", "今日は", "don't")
GLUE = (
    " ",
    "\n",
    " \n",
    "\u00a0",
    " <i>",
    "</i> ",
    " &amp; ",
    " &lt;b&gt; ",
    "<c> ",
    "</c> ",
    " [Music] ",
    " (applause) ",
    "\n>> ",
    "\n- ",
    " ♪ ",
    "\u200b",
    " {\\an8}",
    "<00:00:02.500> ",
    "<00:00:04.000><c> ",
    "<br>",
)
TIMES = st.integers(-2000, 12000).map(lambda ms: ms / 1000)
CUE_TEXTS = st.lists(st.sampled_from(WORDS) | st.sampled_from(GLUE), max_size=8).map("".join)


@st.composite
def tracks(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> list[Cue]:
    rough = st.builds(Cue, TIMES, TIMES, texts)
    cues = draw(st.lists(rough, max_size=8))
    return [*cues, *draw(st.lists(st.sampled_from(cues), max_size=3))] if cues else []


def stamped(caption: Caption) -> Cue:
    """The caption as a cue again, its word times as inline timestamps."""
    text, done = "", 0
    for word in caption.words:
        text += caption.text[done : word.offset]
        done = word.offset
        if word.start is not None:
            milliseconds = round(word.start * 1000)
            seconds, rest = divmod(milliseconds, 1000)
            text += f"<{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:03d}>"
    return Cue(caption.start, caption.end, text + caption.text[done:])


@settings(max_examples=100, deadline=None)
@given(tracks(CUE_TEXTS | st.text(max_size=20)), st.none() | st.sampled_from([0.5, 5.0, 10.0]))
def test_cleaning_again_changes_nothing(cues: list[Cue], duration: float | None) -> None:
    once = clean(cues, duration, CleanConfig()).captions
    again = clean([stamped(caption) for caption in once], duration, CleanConfig())
    assert [(c.start, c.end, c.text) for c in again.captions] == [(c.start, c.end, c.text) for c in once]


@settings(max_examples=100, deadline=None)
@given(tracks(CUE_TEXTS | st.text(max_size=20)), st.none() | st.sampled_from([0.5, 5.0, 10.0]))
def test_without_word_times_too(cues: list[Cue], duration: float | None) -> None:
    plain = [Cue(cue.start, cue.end, re.sub(r"<[0-9:.]+>", "", cue.text)) for cue in cues]
    once = clean(plain, duration, CleanConfig()).captions
    again = clean([Cue(c.start, c.end, c.text) for c in once], duration, CleanConfig()).captions
    assert again == once


@settings(max_examples=100, deadline=None)
@given(tracks(CUE_TEXTS | st.text(max_size=20)), st.none() | st.sampled_from([0.5, 5.0, 10.0]))
def test_times_are_real_and_inside_the_video(cues: list[Cue], duration: float | None) -> None:
    for caption in clean(cues, duration, CleanConfig()).captions:
        assert 0 <= caption.start < caption.end
        assert duration is None or caption.end <= duration
        starts = [word.start for word in caption.words if word.start is not None]
        assert starts == sorted(starts)
        assert all(caption.start <= start and (duration is None or start < duration) for start in starts)
        assert all(caption.text[w.offset : w.offset + len(w.text)] == w.text for w in caption.words)


@settings(max_examples=100, deadline=None)
@given(tracks(CUE_TEXTS))
def test_the_words_are_those_of_the_file_in_its_order(cues: list[Cue]) -> None:
    said = [word for cue in cues for word in re.findall(r"[\w'&]+", plain_text(cue.text))]
    kept = [word for c in clean(cues, None, CleanConfig()).captions for word in re.findall(r"[\w'&]+", c.text)]
    rest = iter(said)
    assert all(word in rest for word in kept), (said, kept)


def plain_text(text: str) -> str:
    text = text.replace("<br>", " ")
    text = re.sub(r"<[^<>]*>|\{[^}]*\}", "", text)
    text = re.sub(r"&lt;b&gt;", "", text).replace("&amp;", "&")
    return text.replace("\u200b", " ")


@pytest.mark.parametrize("step", sorted(CleanConfig.model_fields.keys() - {"examples"}))
def test_a_step_that_is_off_is_not_counted(step: str) -> None:
    cues = [Cue(0, 1, "a &amp; b"), Cue(1, 1, "[Music]")]
    assert step not in clean(cues, 5.0, CleanConfig(**{step: False})).counts
    assert step in clean(cues, 5.0, CleanConfig()).counts
