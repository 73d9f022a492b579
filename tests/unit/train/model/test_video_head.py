"""Every head: shapes, gradients, padding."""

from __future__ import annotations

import math

import pytest
import torch

from train.model.video_head import VIDEO_HEADS, VideoHeadConfig


@pytest.mark.parametrize("options", [{}, {"hidden": 9}, {"layer_norm": True, "dropout": 0.5}])
@pytest.mark.parametrize("name", VIDEO_HEADS)
def test_rows_to_one_vector_independent_of_padding(name, options):
    head = VIDEO_HEADS[name]((6,), 4, VideoHeadConfig(name=name, **options)).eval()
    video = torch.randn(2, 5, 6)
    mask = torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    padded = torch.where(mask[..., None], video, torch.tensor(math.nan))
    embedded = head(padded, mask)
    assert embedded.shape == (2, 4)
    torch.testing.assert_close(embedded[:1], head(video[:1, :3], mask[:1, :3]))
    embedded.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())


def test_stored_half_precision_rows_are_raised_to_the_weights():
    head = VIDEO_HEADS["mean"]((6,), 4, VideoHeadConfig())
    assert head(torch.ones(1, 2, 6, dtype=torch.float16), torch.ones(1, 2, dtype=torch.bool)).dtype == torch.float32


def test_every_name_of_the_config_has_a_head():
    assert set(VideoHeadConfig.model_json_schema()["properties"]["name"]["enum"]) == set(VIDEO_HEADS)


@pytest.mark.parametrize("name", VIDEO_HEADS)
def test_each_stream_is_normalised_apart(name):
    config = VideoHeadConfig(name=name, layer_norm=True)
    head = VIDEO_HEADS[name]((6, 3), 4, config).eval()
    video, mask = torch.randn(2, 5, 9), torch.ones(2, 5, dtype=torch.bool)
    louder = torch.cat([video[..., :6], 40 * video[..., 6:] + 7], dim=-1)
    torch.testing.assert_close(head(louder, mask), head(video, mask), rtol=1e-3, atol=1e-3)
    normed = head.norm(video)
    for part in (slice(0, 6), slice(6, 9)):
        torch.testing.assert_close(
            normed[..., part], torch.nn.functional.layer_norm(video[..., part], (part.stop - part.start,))
        )
    assert {"norm.streams.0.weight", "norm.streams.1.bias"} < set(head.state_dict())


def test_one_stream_has_the_names_that_it_always_had():
    head = VIDEO_HEADS["mean"]((6,), 4, VideoHeadConfig(layer_norm=True))
    assert set(head.state_dict()) == {"norm.weight", "norm.bias", "projection.weight", "projection.bias"}


def test_the_projection_of_joined_rows_is_the_sum_of_one_of_each_stream():
    head = VIDEO_HEADS["mean"]((6, 3), 4, VideoHeadConfig()).eval()
    video, mask = torch.randn(2, 5, 9), torch.ones(2, 5, dtype=torch.bool)
    weight = head.projection.weight
    apart = video[..., :6] @ weight[:, :6].T + video[..., 6:] @ weight[:, 6:].T + head.projection.bias
    torch.testing.assert_close(head(video, mask), apart.mean(dim=1))
