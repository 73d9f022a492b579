from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from preprocess.decode.sampling import Sampling
from preprocess.extract import S3DHowTo100MSection, build_extractor
from preprocess.extract.s3dg import S3DG
from shared.errors import EnvironmentLacking, RequestError

CLIPS = Sampling(strategy="dense", fps=5.0, frames=4)


@pytest.fixture
def released(tmp_path):
    """A file in the form of the released one, text tower included, and its network."""
    torch.manual_seed(0)
    model = S3DG().eval()
    text = {"text_module.fc1.weight": torch.zeros(4, 3), "text_module.word_embd.weight": torch.zeros(9, 3)}
    torch.save(model.state_dict() | text, tmp_path / "s3d_howto100m.pth")
    return model, tmp_path / "s3d_howto100m.pth"


@pytest.mark.parametrize(("output", "dim"), [("video_embedding", 512), ("mixed_5c", 1024)])
def test_rows_are_the_networks_outputs_on_frames_over_255(released, noise_clip, output, dim):
    model, path = released
    section = S3DHowTo100MSection(
        weights=str(path), sampling=CLIPS, size=32, output=output, dtype="float32", batch_size=2
    )
    extractor = build_extractor(section, "cpu")
    clips = [noise_clip(4, 32, 32, seed) for seed in (0, 1)]
    rows = extractor.compute(torch.stack([extractor.prepare(clip) for clip in clips]))
    with torch.inference_mode():
        expected = model(torch.from_numpy(np.stack(clips)).permute(0, 4, 1, 2, 3).float() / 255)
    assert extractor.spec.row_shape == (dim,)
    np.testing.assert_allclose(rows, getattr(expected, f"{output}_BD").numpy(), rtol=1e-5, atol=1e-6)


def test_the_centre_square_is_taken_before_scaling(released, noise_clip):
    extractor = build_extractor(S3DHowTo100MSection(weights=str(released[1]), sampling=CLIPS, size=32), "cpu")
    assert extractor.spec.short_side == 32
    wide = noise_clip(4, 32, 50)
    np.testing.assert_array_equal(extractor.prepare(wide).numpy(), wide[:, :, 9:41])


@pytest.mark.parametrize("change", [{"size": 33}, {"sampling": Sampling(strategy="dense", fps=5.0, frames=15)}])
def test_odd_sizes_are_refused_in_the_config(change):
    with pytest.raises(ValidationError, match=r"folds its input by two: .* must be even"):
        S3DHowTo100MSection(**change)


def test_single_frames_are_refused_in_the_config():
    with pytest.raises(ValidationError, match="strategy must be dense, got fps"):
        S3DHowTo100MSection(sampling=Sampling())


def test_missing_weights_say_where_the_release_is():
    with pytest.raises(EnvironmentLacking, match=r"howto100m/s3d_howto100m\.pth"):
        build_extractor(S3DHowTo100MSection(), "cpu")


def test_weights_of_another_network_are_refused_by_key(tmp_path):
    torch.save({"features.0.weight": torch.zeros(2)}, tmp_path / "w.pth")
    with pytest.raises(RequestError, match=r"missing: conv1\.conv1\.weight.*unexpected: features\.0\.weight"):
        build_extractor(S3DHowTo100MSection(weights=str(tmp_path / "w.pth")), "cpu")
