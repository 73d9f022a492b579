from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from preprocess.extract.model_extractor import ModelExtractor, effective_precision, model_spec
from preprocess.extract.sections import ModelSection
from shared.errors import EnvironmentLacking


class Mean(ModelExtractor):
    """The three channel means of a frame, times `gain`."""

    def __init__(self, section, device="cpu", gain=1.0):
        self._gain = gain
        device = torch.device(device)
        spec = model_spec(
            section,
            device,
            dim=3,
            batch_size=2,
            short_side=8,
            memory_format=None,
            identity={"extractor": "mean"},
            versions={"mean": "1"},
        )
        super().__init__(section, device, nn.Linear(1, 1), spec)

    def _prepare(self, frames_THWC):
        return torch.from_numpy(frames_THWC[0]).float().mean(dim=(0, 1))

    def _features(self, clips):
        return clips * self._gain


def section(**keys):
    return ModelSection(kind="mean", **keys)


def rows_of(extractor, *clips):
    return extractor.compute(torch.stack([extractor.prepare(clip) for clip in clips]))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rows_have_the_type_of_the_spec(noise_clip, dtype):
    rows = rows_of(Mean(section(dtype=dtype)), noise_clip(1, 4, 4, 0), noise_clip(1, 4, 4, 1))
    assert (rows.dtype, rows.shape, rows.flags.c_contiguous) == (np.dtype(dtype), (2, 3), True)


def test_l2_normalisation_happens_before_the_type_is_cut(noise_clip):
    rows = rows_of(Mean(section(l2_normalize=True), gain=1e4), noise_clip(1, 4, 4, 0), noise_clip(1, 4, 4, 1))
    np.testing.assert_allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1, atol=1e-3)


def test_only_the_fixed_batch_is_computed(noise_clip):
    with pytest.raises(ValueError, match="exactly 2 clips, got 1"):
        rows_of(Mean(section()), noise_clip(1, 4, 4))


def test_more_than_one_thread_is_a_bug_that_is_named(noise_clip):
    torch.set_num_threads(2)
    with pytest.raises(RuntimeError, match="configure_torch_for_determinism"):
        rows_of(Mean(section()), noise_clip(1, 4, 4, 0), noise_clip(1, 4, 4, 1))


@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_a_cpu_computes_in_float32_and_a_gpu_as_asked(precision):
    asked = section(precision=precision)
    assert effective_precision(asked, torch.device("cpu")) == "float32"
    assert effective_precision(asked, torch.device("cuda")) == precision
    assert Mean(asked).spec.identity["precision"] == "float32"
    assert Mean(asked, "cuda").spec.identity["precision"] == precision


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_the_facts_of_a_gpu_extractor_can_be_asked_where_there_is_none(noise_clip):
    extractor = Mean(section(), "cuda")
    assert extractor.spec.row_shape == (3,)
    with pytest.raises(EnvironmentLacking, match="sees 0 CUDA devices"):
        rows_of(extractor, noise_clip(1, 4, 4, 0), noise_clip(1, 4, 4, 1))


def test_full_frames_leave_scaling_to_the_models_own_preprocessing():
    assert Mean(section()).spec.short_side == 8
    assert Mean(section(full_frames=True)).spec.short_side is None


def test_versions_and_device_are_recorded_outside_the_identity():
    spec = Mean(section()).spec
    assert spec.environment["torch"] == torch.__version__
    assert spec.environment["mean"] == "1"
    assert spec.environment["device"].startswith("cpu")
    assert torch.__version__ not in str(spec.identity)
