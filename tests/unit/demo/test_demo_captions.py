"""Narration and its three written forms: readable by others, and the same words in all."""

from __future__ import annotations

import io
import re
from itertools import pairwise

import pytest

from demo.caption_files import rolling_webvtt, subrip, webvtt
from demo.narration import FULL, PARTIAL, Cue, narrate
from demo.scenes import draw_scenes

webvtt_py = pytest.importorskip("webvtt")

CUES = [
    Cue(0.24, 3.1, "today we are going to open the oven door"),
    Cue(3.5, 5.0, "[Music]"),
    Cue(3662.0, 3664.5, "done"),
]


def parsed(text: str, form: str) -> list[tuple[float, float, str]]:
    captions = webvtt_py.from_buffer(io.StringIO(text), format=form)
    return [(caption.start_in_seconds, caption.end_in_seconds, caption.raw_text) for caption in captions]


@pytest.mark.parametrize(("write", "form"), [(webvtt, "vtt"), (subrip, "srt")])
def test_plain_forms_are_parsed_back_word_for_word(write, form):
    read = webvtt_py.from_buffer(io.StringIO(write(CUES)), format=form)
    assert [caption.text for caption in read] == [cue.text for cue in CUES]
    stamps = [caption.start.replace(",", ".") for caption in read]
    assert stamps == ["00:00:00.240", "00:00:03.500", "01:01:02.000"]


def test_rolling_form_repeats_each_line_and_holds_it_for_10_ms():
    blocks = [block.splitlines() for block in rolling_webvtt(CUES).split("\n\n")[1:]]
    said, held = blocks[0::2], blocks[1::2]
    assert len(said) == len(held) == 4  # the first cue is broken into two lines
    for index, (new, hold) in enumerate(zip(said, held, strict=True)):
        plain = re.sub(r"<[^>]*>", "", new[2])
        assert hold[1] == plain
        assert new[1] == (" " if index == 0 else held[index - 1][1])
    assert said[0][2].startswith("today<00:00:00.")
    assert "><c> we</c><" in said[0][2]
    assert held[-1][0] == "01:01:04.490 --> 01:01:04.500 align:start position:0%"


def test_rolling_form_says_each_word_once_and_in_time():
    text = rolling_webvtt(CUES)
    new_lines = [line for line in text.splitlines() if "<c>" in line] + ["[Music]", "done"]
    words = " ".join(re.sub(r"<[^>]*>", "", line) for line in new_lines).split()
    assert words == " ".join(cue.text for cue in CUES).split()
    stamps = re.findall(r"<(\d\d:\d\d:\d\d\.\d\d\d)>", text)
    assert stamps == sorted(stamps)


def test_rolling_form_is_webvtt():
    starts = [start for start, _, _ in parsed(rolling_webvtt(CUES), "vtt")]
    assert starts == sorted(starts)


@pytest.mark.parametrize("seed", [0, 1])
def test_narration_stays_in_order_inside_the_video_and_strays_from_its_scenes(seed):
    starts = []
    for number in range(40):
        scenes = draw_scenes(seed, number, 10)
        cues = narrate(scenes, seed, number, "train")
        assert cues
        assert all(0 <= cue.start < cue.end <= scenes[-1].end for cue in cues)
        assert all(before.end <= after.start for before, after in pairwise(cues))
        starts += [min(abs(cue.start - scene.start) for scene in scenes) for cue in cues]
    strayed = sum(start > 0.9 for start in starts) / len(starts)
    assert 0.3 < strayed < 0.9


def test_held_out_sentences_are_built_differently():
    for patterns in (FULL, PARTIAL):
        assert not set(patterns["train"]) & set(patterns["val"])
