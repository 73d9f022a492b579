from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from preprocess.decode.sampling import Sampling
from preprocess.extract import FramesSection, build_extractor


def rows_of(section, *clips):
    extractor = build_extractor(section, "cpu")
    return extractor.compute(torch.stack([extractor.prepare(clip) for clip in clips]))


def test_a_thumbnail_a_row(noise_clip):
    section = FramesSection(size=(6, 8), batch_size=2)
    extractor = build_extractor(section, "cpu")
    assert (extractor.spec.kind, extractor.spec.dtype, extractor.spec.row_shape) == ("frames", "uint8", (6, 8, 3))
    rows = rows_of(section, noise_clip(1, 24, 32, 0), noise_clip(1, 40, 32, 1))
    assert (rows.dtype, rows.shape) == (np.uint8, (2, 6, 8, 3))
    expected = Image.fromarray(noise_clip(1, 24, 32, 0)[0]).resize((8, 6), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(rows[0], np.asarray(expected))


def test_whole_clips_as_rows_keep_the_pixels_that_fit(noise_clip):
    section = FramesSection(sampling=Sampling(strategy="dense", fps=2.0, frames=4), size=16, batch_size=1)
    clip = noise_clip(4, 16, 21)
    rows = rows_of(section, clip)
    assert build_extractor(section, "cpu").spec.row_shape == (4, 16, 16, 3)
    np.testing.assert_array_equal(rows[0], clip[:, :, 2:18])


def test_a_dense_clip_of_one_frame_is_still_a_clip(noise_clip):
    section = FramesSection(sampling=Sampling(strategy="dense", frames=1), size=4, batch_size=1)
    assert rows_of(section, noise_clip(1, 4, 4)).shape == (1, 1, 4, 4, 3)


def test_padding_keeps_everything(noise_clip):
    clip = noise_clip(1, 20, 10)
    rows = rows_of(FramesSection(size=20, fit="pad", batch_size=1), clip)
    np.testing.assert_array_equal(rows[0, :, 5:15], clip[0])
    assert not rows[0, :, :5].any()
    expected = ImageOps.pad(Image.fromarray(clip[0]), (20, 20))
    np.testing.assert_array_equal(rows[0], np.asarray(expected))


def test_the_wrong_batch_or_clip_is_a_bug(noise_clip):
    extractor = build_extractor(FramesSection(size=4, batch_size=2), "cpu")
    with pytest.raises(ValueError, match="exactly 2 clips, got 1"):
        extractor.compute(extractor.prepare(noise_clip(1, 8, 8))[None])
    with pytest.raises(ValueError, match="1 frames a row, got a clip of 2"):
        extractor.prepare(noise_clip(2, 8, 8))
    with pytest.raises(ValueError, match=r"uint8 \(T, H, W, 3\), got float32"):
        extractor.prepare(noise_clip(1, 8, 8).astype(np.float32))


def test_size_and_fit_are_in_the_identity_and_the_batch_size_is_not():
    def identity(**keys):
        return build_extractor(FramesSection(**keys), "cpu").spec.identity

    assert identity(batch_size=3) == identity()
    assert identity(size=100) != identity() != identity(fit="pad")
