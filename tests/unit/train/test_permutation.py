from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from train.permutation import TABLE_LIMIT, Permutation, feistel, keyed_hash, mix_key


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 5000), key=st.integers(0, 2**64 - 1))
def test_feistel_is_a_bijection_of_any_size(size, key):
    image = feistel(np.arange(size), size, key)
    assert (np.sort(image) == np.arange(size)).all()


@pytest.mark.parametrize("size", [1, 2, 1000, TABLE_LIMIT, TABLE_LIMIT + 1, 600_000])
def test_any_part_is_what_the_whole_says(size):
    permutation = Permutation(size, 7)
    whole = permutation.take(0, size)
    assert (np.sort(whole) == np.arange(size)).all()
    for start in {0, size // 3, size - 1, max(0, min(size - 3, 262_143))}:
        stop = min(size, start + 5)
        assert (Permutation(size, 7).take(start, stop) == whole[start:stop]).all()


@pytest.mark.parametrize("pair", [(0, 64), (0, 1)])
def test_differences_of_neighbours_look_uniform(pair):
    """Over many keys, in both halves; chi-squared within six standard deviations. Four rounds fail this, six do not."""
    image = np.array([feistel(np.array(pair), 4096, mix_key(key)) for key in range(6400)])
    difference = image[:, 0] ^ image[:, 1]
    for half in (difference >> 6, difference & 63):
        chi = ((np.bincount(half, minlength=64) - 100.0) ** 2 / 100.0).sum()
        assert chi < 63 + 6 * np.sqrt(2 * 63)


def test_keys_and_values_are_pinned():
    """A checkpoint refers to these numbers: another machine or numpy must give the same."""
    assert mix_key(1, 2, 3) == 1884114840797188290
    assert feistel(np.arange(5), 1000, 42).tolist() == [453, 816, 740, 413, 240]
    assert Permutation(10, 3).take(0, 10).tolist() == [4, 1, 0, 7, 5, 9, 3, 6, 2, 8]
    assert mix_key(1, 2) != mix_key(2, 1)
    assert len(set(keyed_hash(np.arange(100_000), 5).tolist())) == 100_000
