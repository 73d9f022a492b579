"""Splits: by the input or by a keyed hash, the same for a video whatever the others are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pydantic import ValidationError

from preprocess.captions.split import SplitConfig, read_exclusions, split_of
from shared.errors import InputFileError

IDS = [f"video{number}" for number in range(20_000)]


def test_shares_are_those_asked_for() -> None:
    config = SplitConfig(fractions={"train": 0.7, "val": 0.1, "test": 0.2})
    counts = Counter(split_of(video_id, None, config) for video_id in IDS)
    for name, share in config.fractions.items():
        assert abs(counts[name] / len(IDS) - share) < 0.015


def test_pinned_and_independent_of_the_order_of_the_config() -> None:
    one = SplitConfig(fractions={"train": 0.5, "test": 0.5})
    other = SplitConfig(fractions={"test": 0.5, "train": 0.5})
    splits = [split_of(video_id, None, one) for video_id in IDS[:12]]
    assert splits == [split_of(video_id, None, other) for video_id in IDS[:12]]
    assert "".join(name[1] for name in splits) == PINNED


PINNED = "errrerrrrrrr"


def test_another_key_deals_anew() -> None:
    half = {"a": 0.5, "b": 0.5}
    same = sum(
        split_of(video_id, None, SplitConfig(fractions=half))
        == split_of(video_id, None, SplitConfig(fractions=half, key=7))
        for video_id in IDS
    )
    assert abs(same / len(IDS) - 0.5) < 0.02


def test_what_the_input_says_counts_unless_it_is_not_to() -> None:
    assert split_of("a", "mine", SplitConfig()) == "mine"
    assert split_of("a", "mine", SplitConfig(fractions={"all": 1.0}, given=False)) == "all"
    assert split_of("a", "", SplitConfig(fractions={"all": 1.0})) == "all"


@pytest.mark.parametrize("fractions", [{"train": 0.5}, {"a": 1.5, "b": -0.5}, {"../x": 1.0}, {}])
def test_fractions_that_are_none(fractions: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        SplitConfig(fractions=fractions)


def test_exclusion_list(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("\ufeff-abc\n\n  b c \r\n", encoding="utf-8")
    assert read_exclusions(path) == {"-abc", "b c"}
    assert read_exclusions(None) == frozenset()
    with pytest.raises(InputFileError, match="one video id a line"):
        read_exclusions(tmp_path / "absent.txt")
