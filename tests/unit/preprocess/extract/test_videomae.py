from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import (
    CLIPConfig,
    VideoMAEConfig,
    VideoMAEForPreTraining,
    VideoMAEForVideoClassification,
    VideoMAEImageProcessor,
    VideoMAEModel,
)

from preprocess.decode.sampling import Sampling
from preprocess.extract import VideoMAESection, build_extractor
from shared.errors import EnvironmentLacking, RequestError

CLIPS = Sampling(strategy="dense", fps=7.5, frames=4)
TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "num_frames": 4,
    "num_labels": 5,
    "decoder_hidden_size": 16,
    "decoder_num_hidden_layers": 1,
    "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 32,
}


def save(folder, cls, seed=0, processor=None, **change):
    """A checkpoint in the library's own form, its weights made on the spot."""
    torch.manual_seed(seed)
    model = cls(VideoMAEConfig(**{**TINY, **change})).eval()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.2)  # the library starts norms and biases at one and zero, which would hide a fault
    model.save_pretrained(folder)
    processor = processor or VideoMAEImageProcessor(
        image_mean=[0.1, 0.2, 0.3],
        image_std=[0.4, 0.5, 0.6],
        size={"shortest_edge": 36},
        crop_size={"height": 32, "width": 32},
    )
    processor.save_pretrained(folder)
    return model, processor


def section(folder, **change):
    return VideoMAESection(**{"weights": str(folder), "sampling": CLIPS, "dtype": "float32", "batch_size": 2, **change})


@pytest.mark.parametrize("cls", [VideoMAEModel, VideoMAEForPreTraining, VideoMAEForVideoClassification])
@pytest.mark.parametrize("mean_pooling", [False, True])
def test_equal_to_transformers_called_directly(tmp_path, noise_clip, cls, mean_pooling):
    model, processor = save(tmp_path, cls, use_mean_pooling=mean_pooling)
    extractor = build_extractor(section(tmp_path), "cpu")
    clips = [noise_clip(4, 50, 41, seed) for seed in (0, 1)]
    pixels = processor([list(clip) for clip in clips], return_tensors="pt")["pixel_values"]
    prepared = torch.stack([extractor.prepare(clip) for clip in clips])
    assert torch.equal(prepared, pixels)
    with torch.inference_mode():
        encoder = model if cls is VideoMAEModel else model.videomae
        expected = encoder(pixels).last_hidden_state.mean(dim=1)
        if cls is VideoMAEForVideoClassification and mean_pooling:
            expected = model.fc_norm(expected)
            logits = model(pixels).logits
            torch.testing.assert_close(model.classifier(expected), logits)  # so these are the library's own features
    np.testing.assert_allclose(extractor.compute(prepared), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_random_weights_use_imagenet_statistics_and_not_the_class_defaults():
    spec = build_extractor(VideoMAESection(weights="random", seed=0), "cpu").spec
    assert spec.identity["processor"]["image_mean"] == [0.485, 0.456, 0.406]
    assert spec.short_side == 224


def test_a_checkpoint_without_its_processor_is_refused(tmp_path):
    save(tmp_path, VideoMAEModel)
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(RequestError, match=r"no preprocessor_config\.json"):
        build_extractor(section(tmp_path), "cpu")


def test_a_processor_for_another_size_is_refused(tmp_path):
    save(tmp_path, VideoMAEModel, processor=VideoMAEImageProcessor())
    with pytest.raises(RequestError, match=r"makes clips \(4, 3, 224, 224\), the model takes \(4, 3, 32, 32\)"):
        build_extractor(section(tmp_path), "cpu")


def test_another_number_of_frames_is_refused(tmp_path):
    save(tmp_path, VideoMAEModel)
    with pytest.raises(RequestError, match=r"takes clips of 4 frames, sampling\.frames is 16"):
        build_extractor(VideoMAESection(weights=str(tmp_path)), "cpu")


def test_missing_and_unexpected_keys_are_named(tmp_path):
    save(tmp_path, VideoMAEModel)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(RequestError, match=r"missing: encoder\.layer\.2\."):
        build_extractor(section(tmp_path), "cpu")
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    with pytest.raises(RequestError, match=r"unexpected: encoder\.layer\.1\."):
        build_extractor(section(tmp_path), "cpu")
    (tmp_path / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
    with pytest.raises(RequestError, match=r"of another shape: encoder.*\(64, 32\) instead of \(48, 32\)"):
        build_extractor(section(tmp_path), "cpu")


def test_a_cut_file_is_a_request_error(tmp_path):
    save(tmp_path, VideoMAEModel)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(RequestError, match="cannot be read"):
        build_extractor(section(tmp_path), "cpu")


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    save(tmp_path, VideoMAEModel)
    CLIPConfig(architectures=["CLIPModel"]).save_pretrained(tmp_path)
    with pytest.raises(RequestError, match="CLIPModel"):
        build_extractor(section(tmp_path), "cpu")


def test_a_hub_id_without_a_network_is_an_environment_that_lacks(monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("no route")

    monkeypatch.setattr("preprocess.extract.hub.snapshot_download", refuse)
    with pytest.raises(EnvironmentLacking, match=r"someone/some-model could not be fetched \(no route\)[\s\S]*by path"):
        build_extractor(VideoMAESection(weights="someone/some-model"), "cpu")


def test_a_hub_id_is_fetched_and_its_files_are_in_the_identity(tmp_path, monkeypatch):
    save(tmp_path, VideoMAEModel)
    monkeypatch.setattr("preprocess.extract.hub.snapshot_download", lambda *args, **kwargs: str(tmp_path))
    by_id = build_extractor(section("someone/some-model"), "cpu").spec.identity
    assert by_id == build_extractor(section(tmp_path), "cpu").spec.identity
    assert list(by_id["weights"]) == ["model.safetensors"]
