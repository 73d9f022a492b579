"""Numbers for people."""

from __future__ import annotations

import pytest

from shared.words import counted, duration_words, speed_words


@pytest.mark.parametrize(("count", "words"), [(0, "0 videos"), (1, "1 video"), (2, "2 videos")])
def test_one_is_not_many(count: int, words: str) -> None:
    assert counted(count, "video") == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (4.298, "4.3 s"), (480, "8 min"), (5400, "1.5 h"), (484_099_200, "134,472 h")],
)
def test_lengths_in_the_unit_that_fits(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "wall_s", "words"),
    [
        (4.298, 54.0, "0.0796 x real time"),
        (360, 1, "360 x real time"),
        (7200, 1, "2 h of video a second"),
        (1, 0, "0 x real time"),
    ],
)
def test_speeds(seconds: float, wall_s: float, words: str) -> None:
    assert speed_words(seconds, wall_s) == words
