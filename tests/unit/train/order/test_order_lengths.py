from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.order.classes import LengthClasses
from train.order.layout import VideoLayout
from train.order.lengths import Lengths, samples_by_class, token_lengths


@given(
    bags=st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=30),
    tokens=st.lists(st.integers(0, 12), min_size=10, max_size=10),
    most=st.integers(1, 12),
    at_once=st.integers(1, 40),
)
def test_a_window_is_as_long_as_the_longest_caption_of_its_bag(bags, tokens, most, at_once):
    with patch("train.order.lengths._AT_ONCE", at_once):
        found = token_lengths(
            np.array([len(bag) for bag in bags], np.int32),
            np.array([caption for bag in bags for caption in bag], np.int64),
            np.concatenate([[0], np.cumsum(tokens)]),
            most,
        )
    expected = [max([1, *(min(tokens[caption], most) for caption in bag)]) for bag in bags]
    assert found.of(np.arange(len(bags))).tolist() == expected
    assert found.longest == max(expected)


def test_lengths_are_cut_at_the_longest_that_is_read():
    assert Lengths(np.array([3, 90, 8]), 16).of(np.array([1, 2, 0])).tolist() == [16, 8, 3]


@pytest.mark.parametrize(("unit", "samples"), [("window", [2, 3]), ("video", [0.5, 1.5])])
def test_a_video_counts_once_each_of_its_windows_as_likely(unit, samples):
    classes = LengthClasses("rows", np.array([1, 5]), (1, 1))
    layout, lengths = VideoLayout(np.array([4, 3, 4, 4, 4])), Lengths(np.array([1, 2, 4, 1, 3]), 5)
    with patch("train.order.lengths._AT_ONCE", 2):
        assert samples_by_class(layout, classes, lengths, unit=unit).tolist() == samples
