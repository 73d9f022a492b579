from __future__ import annotations

import json

import numpy as np
import pytest
import timm
import timm.data
import torch
from PIL import Image
from pydantic import ValidationError

from preprocess.decode.sampling import Sampling
from preprocess.extract import TimmSection, build_extractor
from preprocess.extract.timm_image import DEFAULT_WEIGHTS
from preprocess.extract.weights import read_state
from shared.errors import EnvironmentLacking, RequestError
from shared.resources import resolve_resource

SMALL = "mobilenetv3_small_050"
SMALL_VIT = "test_vit"


def save_random(name: str, path, seed: int = 0, **arguments):
    """The library's own model with weights made on the spot, saved as published ones are."""
    torch.manual_seed(seed)
    model = timm.create_model(name, **arguments).eval()
    torch.save(model.state_dict(), path)
    return model


def library_features(model, frames, **override):
    """What timm itself says, one frame at a time, classifier left out by its own method."""
    transform = timm.data.create_transform(**timm.data.resolve_data_config(override, model=model), is_training=False)
    with torch.inference_mode():
        batch = torch.stack([transform(Image.fromarray(frame)) for frame in frames])
        return model.forward_head(model.forward_features(batch), pre_logits=True).numpy()


@pytest.mark.parametrize("name", [SMALL, SMALL_VIT])
@pytest.mark.parametrize(("height", "width"), [(256, 320), (97, 131), (240, 100)])
def test_equal_to_timm_called_directly(tmp_path, noise_clip, name, height, width):
    model = save_random(name, tmp_path / "w.pth")
    extractor = build_extractor(
        TimmSection(model=name, weights=str(tmp_path / "w.pth"), dtype="float32", batch_size=2), "cpu"
    )
    frames = noise_clip(2, height, width)
    rows = extractor.compute(torch.stack([extractor.prepare(frame[None]) for frame in frames]))
    assert rows.shape == (2, *extractor.spec.row_shape)
    np.testing.assert_allclose(rows, library_features(model, frames), rtol=1e-4, atol=1e-5)


def test_pixels_are_bit_for_bit_those_of_timm(noise_clip):
    extractor = build_extractor(TimmSection(model=SMALL, weights="random", seed=0), "cpu")
    config = timm.data.resolve_model_data_config(timm.create_model(SMALL))
    transform = timm.data.create_transform(**config, is_training=False)
    frame = noise_clip(1, 300, 411)
    assert torch.equal(extractor.prepare(frame), transform(Image.fromarray(frame[0])))


def test_given_statistics_and_size_are_used(tmp_path, noise_clip):
    given = {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
    model = save_random(SMALL, tmp_path / "w.pth")
    section = TimmSection(model=SMALL, weights=str(tmp_path / "w.pth"), dtype="float32", batch_size=1, size=96, **given)
    extractor = build_extractor(section, "cpu")
    frames = noise_clip(1, 120, 150)
    expected = library_features(model, frames, input_size=(3, 96, 96), **given)
    np.testing.assert_allclose(extractor.compute(extractor.prepare(frames)[None]), expected, rtol=1e-4, atol=1e-5)
    assert extractor.spec.short_side == int(96 / 0.875)


def test_a_vision_transformer_is_built_for_the_given_size(noise_clip):
    extractor = build_extractor(TimmSection(model=SMALL_VIT, weights="random", seed=0, size=96, batch_size=1), "cpu")
    assert extractor.compute(extractor.prepare(noise_clip(1, 120, 150))[None]).shape == (1, *extractor.spec.row_shape)


def test_the_default_is_the_packaged_imagenet_model():
    extractor = build_extractor(TimmSection(), "cpu")
    assert extractor.spec.row_shape == (1280,)
    assert extractor.spec.sampling == Sampling(strategy="fps", fps=1.0)
    data = extractor.spec.identity["data"]
    assert data["mean"] == [0.485, 0.456, 0.406]  # the file's own, not the 0.5 that timm has for this name
    state = read_state(resolve_resource(DEFAULT_WEIGHTS))
    own = extractor._model.state_dict()
    assert len(state) == len(own) + 2
    assert all(torch.equal(a, b) for a, b in zip(own.values(), state.values(), strict=False))


def test_own_heads_of_any_size_are_left_out(tmp_path):
    save_random(SMALL, tmp_path / "w.pth", num_classes=7)
    extractor = build_extractor(TimmSection(model=SMALL, weights=str(tmp_path / "w.pth")), "cpu")
    assert extractor.spec.row_shape == (1024,)


def test_weights_of_another_architecture_are_refused_by_key(tmp_path):
    save_random("test_resnet", tmp_path / "w.pth")
    with pytest.raises(
        RequestError, match=r"not those of mobilenetv3_small_050.*missing: conv_stem.weight.*unexpected"
    ):
        build_extractor(TimmSection(model=SMALL, weights=str(tmp_path / "w.pth")), "cpu")


def test_an_unknown_model_is_refused_with_near_names():
    with pytest.raises(RequestError, match=r"no model 'mobilenetv9'.*mobilenet"):
        build_extractor(TimmSection(model="mobilenetv9", weights="random", seed=0), "cpu")


@pytest.mark.parametrize("broken", ["preprocess.extract.hub.snapshot_download", "timm.create_model"])
def test_no_network_for_the_hub_is_an_environment_that_lacks(monkeypatch, broken):
    def refuse(*args, **kwargs):
        raise OSError("no route")

    monkeypatch.setattr("preprocess.extract.hub.snapshot_download", lambda *args, **kwargs: "cached")
    monkeypatch.setattr(broken, refuse)
    with pytest.raises(EnvironmentLacking, match=r"no route[\s\S]*by path[\s\S]*random"):
        build_extractor(TimmSection(model=SMALL), "cpu")


def test_clips_of_several_frames_are_refused():
    with pytest.raises(ValidationError, match=r"sampling\.frames must be 1, got 4"):
        TimmSection(sampling=Sampling(strategy="dense", frames=4))


def test_random_weights_are_a_function_of_the_seed_and_leave_the_global_generator_alone():
    before = torch.random.get_rng_state()
    digests = [
        build_extractor(TimmSection(model=SMALL, weights="random", seed=seed), "cpu").spec.identity["weights"]
        for seed in (0, 0, 1)
    ]
    assert digests[0] == digests[1] != digests[2]
    assert torch.equal(torch.random.get_rng_state(), before)


def test_identity_is_json_and_moves_with_what_decides_the_bytes(tmp_path):
    save_random(SMALL, tmp_path / "w.pth")
    (tmp_path / "copy.pth").write_bytes((tmp_path / "w.pth").read_bytes())
    base = TimmSection(model=SMALL, weights=str(tmp_path / "w.pth"))

    def identity(**update):
        return json.dumps(build_extractor(base.model_copy(update=update), "cpu").spec.identity, sort_keys=True)

    own = identity()
    assert str(tmp_path) not in own
    assert identity(weights=str(tmp_path / "copy.pth")) == own
    save_random(SMALL, tmp_path / "other.pth", seed=1)
    updates = [
        {"weights": str(tmp_path / "other.pth")},
        {"mean": (0.1, 0.1, 0.1)},
        {"std": (0.1, 0.1, 0.1)},
        {"size": 96},
        {"dtype": "float32"},
        {"l2_normalize": True},
        {"batch_size": 3},
        {"full_frames": True},
        {"sampling": Sampling(fps=2.0)},
    ]
    assert len({own, *(identity(**update) for update in updates)}) == len(updates) + 1
