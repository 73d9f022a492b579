from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPVisionModel,
    CLIPVisionModelWithProjection,
    VideoMAEConfig,
)

from preprocess.decode.sampling import Sampling
from preprocess.extract import ClipSection, build_extractor
from shared.errors import RequestError

TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 99}
VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


def save(folder, cls=CLIPModel):
    """A checkpoint in the library's own form, with weights made on the spot and a width that no default has."""
    torch.manual_seed(0)
    config = CLIPConfig(text_config=TEXT, vision_config={**VISION, "projection_dim": 12}, projection_dim=12)
    model = cls(config if cls is CLIPModel else config.vision_config).eval()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.2)
    model.save_pretrained(folder)
    processor = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    processor.save_pretrained(folder)
    return model, processor


def section(folder):
    return ClipSection(weights=str(folder), dtype="float32", batch_size=2)


@pytest.mark.parametrize("cls", [CLIPModel, CLIPVisionModelWithProjection])
def test_equal_to_transformers_called_directly(tmp_path, noise_clip, cls):
    model, processor = save(tmp_path, cls)
    extractor = build_extractor(section(tmp_path), "cpu")
    frames = noise_clip(2, 60, 47)
    pixels = processor(list(frames), return_tensors="pt")["pixel_values"]
    prepared = torch.stack([extractor.prepare(frame[None]) for frame in frames])
    assert torch.equal(prepared, pixels)
    with torch.inference_mode():
        if cls is CLIPModel:
            expected = model.visual_projection(model.vision_model(pixels).pooler_output)
        else:
            expected = model(pixels).image_embeds
    np.testing.assert_allclose(extractor.compute(prepared), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_the_projections_width_outside_the_vision_section_counts(tmp_path):
    torch.manual_seed(0)
    CLIPModel(CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=12)).save_pretrained(tmp_path)
    CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    assert build_extractor(section(tmp_path), "cpu").spec.row_shape == (12,)


def test_a_tower_without_projection_is_refused_by_key(tmp_path):
    save(tmp_path, CLIPVisionModel)
    with pytest.raises(RequestError, match=r"missing: visual_projection\.weight"):
        build_extractor(section(tmp_path), "cpu")


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    save(tmp_path)
    VideoMAEConfig().save_pretrained(tmp_path)
    with pytest.raises(RequestError, match="a checkpoint of videomae, expected clip"):
        build_extractor(section(tmp_path), "cpu")


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(RequestError, match=r"no config\.json"):
        build_extractor(section(tmp_path), "cpu")


def test_clips_of_several_frames_are_refused_in_the_config():
    with pytest.raises(ValidationError, match=r"sampling\.frames must be 1, got 8"):
        ClipSection(sampling=Sampling(strategy="dense", frames=8))
