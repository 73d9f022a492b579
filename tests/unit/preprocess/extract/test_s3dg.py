from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from preprocess.extract.s3dg import S3DG, space_to_depth


def test_folding_puts_blocks_into_channels_in_the_order_time_height_width_colour():
    channels, time, height, width = 3, 4, 6, 8
    clips = torch.arange(2 * channels * time * height * width).reshape(2, channels, time, height, width)
    folded = space_to_depth(clips)
    assert folded.shape == (2, 24, 2, 3, 4)
    for dt, dh, dw, c in np.ndindex(2, 2, 2, channels):
        channel = ((dt * 2 + dh) * 2 + dw) * channels + c
        assert torch.equal(folded[:, channel], clips[:, c, dt::2, dh::2, dw::2])


@pytest.mark.parametrize("shape", [(15, 64, 64), (16, 63, 64), (16, 64, 65)])
def test_odd_sizes_are_refused_with_the_sizes(shape):
    with pytest.raises(ValueError, match=f"{shape[0]} frames of {shape[1]} x {shape[2]} cannot be folded"):
        S3DG()(torch.zeros(1, 3, *shape))


def test_keys_and_shapes_are_those_of_the_released_checkpoint(material_path):
    listed = json.loads(material_path("golden", "s3d_howto100m_state_dict.json").read_text())
    video = {key: tuple(shape) for key, shape in listed.items() if not key.startswith("text_module.")}
    assert {key: tuple(value.shape) for key, value in S3DG().state_dict().items()} == video


@pytest.mark.parametrize(("frames", "size"), [(2, 32), (6, 50), (16, 40)])
def test_any_even_size_gives_the_two_outputs(frames, size):
    with torch.inference_mode():
        output = S3DG().eval()(torch.rand(2, 3, frames, size, size))
    assert (output.video_embedding_BD.shape, output.mixed_5c_BD.shape) == ((2, 512), (2, 1024))
    assert torch.isfinite(output.video_embedding_BD).all()
