"""`s3d_kinetics`: torchvision's S3D, trained on Kinetics-400, on dense clips; 1024 features before its head.

torchvision's own average pool has a fixed window made for 224 pixels; here the last block is averaged over all of time
and space, which gives the same kind of vector for clips of any length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
import torchvision
from torch import nn
from torchvision.models.video import S3D_Weights, s3d

from preprocess.extract.model_extractor import ModelExtractor, model_spec
from preprocess.extract.sections import S3DKineticsSection
from preprocess.extract.weights import (
    RANDOM,
    file_digest,
    fill,
    find_weights,
    random_model,
    read_state,
    state_digest,
    three_ways,
)
from shared.errors import EnvironmentLacking

_NAME = "s3d_kinetics"
_BY_NAME = "`weights: KINETICS400_V1` lets torchvision download its own"
_HEAD = "classifier."


class S3DKineticsExtractor(ModelExtractor):
    """Prepared clips are float (3, T, 224, 224), from torchvision's own transform for these weights."""

    def __init__(self, section: S3DKineticsSection, device: torch.device) -> None:
        model, digest = _make_model(section)
        self._transform: Callable[[torch.Tensor], torch.Tensor] = S3D_Weights.KINETICS400_V1.transforms()
        spec = model_spec(
            section,
            device,
            dim=1024,
            batch_size=8 if device.type == "cuda" else 1,
            short_side=256,
            memory_format=self.memory_format,
            identity={
                "extractor": _NAME,
                "revision": 1,
                "weights": digest,
                "transform": repr(self._transform).split(),
            },
            versions={"torchvision": torchvision.__version__},
        )
        super().__init__(section, device, model, spec)
        self._blocks = cast("nn.Module", model.features)

    def _prepare(self, frames_THWC: np.ndarray) -> torch.Tensor:
        return self._transform(torch.from_numpy(np.ascontiguousarray(frames_THWC.transpose(0, 3, 1, 2)))).contiguous()

    def _features(self, clips: torch.Tensor) -> torch.Tensor:
        blocks_BDTHW: torch.Tensor = self._blocks(clips)
        return blocks_BDTHW.mean(dim=(2, 3, 4))


def _make_model(section: S3DKineticsSection) -> tuple[nn.Module, dict[str, str]]:
    """The network without its head, and what its weights are."""
    weights = section.weights or S3D_Weights.KINETICS400_V1.name
    if weights == RANDOM:
        model = random_model(_NAME, section.seed, _headless)
        return model, {"state_xxh3_128": state_digest(model.state_dict())}
    model = _headless()
    if weights in S3D_Weights.__members__:
        state = _published(weights)
        digest = {"state_xxh3_128": state_digest(state)}
    else:
        path = find_weights(weights, _NAME, _BY_NAME)
        state = read_state(path)
        digest = {"file_xxh3_128": file_digest(path)}
    fill(model, {key: value for key, value in state.items() if not key.startswith(_HEAD)}, _NAME, weights)
    return model, digest


def _headless() -> nn.Module:
    model: nn.Module = s3d()
    model.classifier = nn.Identity()
    return model


def _published(name: str) -> dict[str, torch.Tensor]:
    try:
        state: dict[str, torch.Tensor] = S3D_Weights[name].get_state_dict(
            progress=False, check_hash=True, weights_only=True
        )
    except (OSError, RuntimeError) as error:  # no network; or what came does not have the published hash
        raise EnvironmentLacking(
            f"{_NAME}: torchvision could not fetch {name} ({error}). {three_ways(_BY_NAME)}"
        ) from error
    return state
