"""Every head: shapes, gradients, padding."""

from __future__ import annotations

import math

import pytest
import torch

from train.model.video_head import VIDEO_HEADS, VideoHeadConfig


@pytest.mark.parametrize("options", [{}, {"hidden": 9}, {"layer_norm": True, "dropout": 0.5}])
@pytest.mark.parametrize("name", VIDEO_HEADS)
def test_rows_to_one_vector_independent_of_padding(name, options):
    head = VIDEO_HEADS[name](6, 4, VideoHeadConfig(name=name, **options)).eval()
    video = torch.randn(2, 5, 6)
    mask = torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    padded = torch.where(mask[..., None], video, torch.tensor(math.nan))
    embedded = head(padded, mask)
    assert embedded.shape == (2, 4)
    torch.testing.assert_close(embedded[:1], head(video[:1, :3], mask[:1, :3]))
    embedded.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())


def test_stored_half_precision_rows_are_raised_to_the_weights():
    head = VIDEO_HEADS["mean"](6, 4, VideoHeadConfig())
    assert head(torch.ones(1, 2, 6, dtype=torch.float16), torch.ones(1, 2, dtype=torch.bool)).dtype == torch.float32


def test_every_name_of_the_config_has_a_head():
    assert set(VideoHeadConfig.model_json_schema()["properties"]["name"]["enum"]) == set(VIDEO_HEADS)
