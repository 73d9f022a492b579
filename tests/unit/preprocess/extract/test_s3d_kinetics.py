from __future__ import annotations

import urllib.error

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torchvision.models.video import S3D_Weights, s3d

from preprocess.decode.sampling import Sampling
from preprocess.extract import S3DKineticsSection, build_extractor
from shared.errors import EnvironmentLacking

CLIPS = Sampling(strategy="dense", fps=15.0, frames=14)


def test_equal_to_torchvision_called_directly(tmp_path, noise_clip):
    torch.manual_seed(0)
    model = s3d().eval()
    torch.save(model.state_dict(), tmp_path / "w.pth")
    section = S3DKineticsSection(weights=str(tmp_path / "w.pth"), sampling=CLIPS, dtype="float32", batch_size=1)
    extractor = build_extractor(section, "cpu")
    frames = noise_clip(14, 90, 120)
    pixels = S3D_Weights.KINETICS400_V1.transforms()(torch.from_numpy(frames).permute(0, 3, 1, 2).contiguous())
    assert torch.equal(extractor.prepare(frames), pixels)
    with torch.inference_mode():
        expected = model.features(pixels[None]).mean(dim=(2, 3, 4)).numpy()
    rows = extractor.compute(extractor.prepare(frames)[None])
    assert rows.shape == (1, 1024)
    np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-6)


def test_no_network_for_a_published_name_is_an_environment_that_lacks(monkeypatch):
    def refuse(*args, **kwargs):
        raise urllib.error.URLError("no route")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", refuse)
    with pytest.raises(EnvironmentLacking, match=r"no route[\s\S]*by path"):
        build_extractor(S3DKineticsSection(), "cpu")


def test_weights_by_name_are_torchvisions(monkeypatch):
    torch.manual_seed(0)
    state = s3d().state_dict()
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", lambda *args, **kwargs: state)
    extractor = build_extractor(S3DKineticsSection(weights="KINETICS400_V1", sampling=CLIPS), "cpu")
    assert torch.equal(extractor._model.features[0][0][0].weight, state["features.0.0.0.weight"])


def test_clips_that_are_too_short_are_refused_in_the_config():
    with pytest.raises(ValidationError, match="at least 14, got 13"):
        S3DKineticsSection(sampling=Sampling(strategy="dense", fps=15.0, frames=13))
