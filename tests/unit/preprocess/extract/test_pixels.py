from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from preprocess.extract.pixels import crop_and_scale

BICUBIC = Image.Resampling.BICUBIC


@pytest.mark.parametrize(
    ("shape", "target", "rows", "columns"),
    [
        ((20, 30), (20, 20), slice(0, 20), slice(5, 25)),
        ((30, 20), (20, 20), slice(5, 25), slice(0, 20)),
        ((21, 20), (20, 20), slice(0, 20), slice(0, 20)),
        ((20, 20), (20, 20), slice(0, 20), slice(0, 20)),
        ((12, 30), (12, 20), slice(0, 12), slice(5, 25)),
    ],
)
def test_a_frame_that_only_needs_cropping_keeps_its_values(shape, target, rows, columns):
    frame = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    np.testing.assert_array_equal(crop_and_scale(frame, *target, BICUBIC), frame[rows, columns])


@given(height=st.integers(1, 60), width=st.integers(1, 60), to_height=st.integers(1, 40), to_width=st.integers(1, 40))
def test_any_frame_gives_the_asked_size_and_a_flat_one_stays_flat(height, width, to_height, to_width):
    frame = np.full((height, width, 3), 77, np.uint8)
    scaled = crop_and_scale(frame, to_height, to_width, BICUBIC)
    assert scaled.shape == (to_height, to_width, 3)
    assert (scaled == 77).all()


def test_a_strip_is_cropped_before_it_is_scaled():
    strip = np.zeros((1, 100_000, 3), np.uint8)
    assert crop_and_scale(strip, 224, 224, BICUBIC).shape == (224, 224, 3)
