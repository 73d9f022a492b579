"""`videomae`: any VideoMAE checkpoint of the transformers library on dense clips.

A row is the mean over all tokens (there is no class token), through `fc_norm` where the checkpoint was fine-tuned.
Tong et al., "VideoMAE: Masked Autoencoders are Data-Efficient Learners" (arXiv 2203.12602).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers
from transformers import (
    VideoMAEConfig,
    VideoMAEForPreTraining,
    VideoMAEForVideoClassification,
    VideoMAEImageProcessor,
    VideoMAEModel,
)

from preprocess.extract.checkpoint import (
    checkpoint_digest,
    find_checkpoint,
    load_checkpoint,
    load_processor,
    plain_config,
    processor_short_side,
)
from preprocess.extract.model_extractor import ModelExtractor, model_spec
from preprocess.extract.sections import VideoMAESection
from preprocess.extract.weights import RANDOM, random_model, state_digest
from shared.errors import RequestError

_NAME = "videomae"
_EXAMPLE = "MCG-NJU/videomae-base-finetuned-kinetics"
_ARCHITECTURES: dict[str, Any] = {
    "VideoMAEModel": VideoMAEModel,
    "VideoMAEForPreTraining": VideoMAEForPreTraining,
    "VideoMAEForVideoClassification": VideoMAEForVideoClassification,
}
_IMAGENET_MEAN, _IMAGENET_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class VideoMAEExtractor(ModelExtractor):
    """Prepared clips are float (T, 3, H, W), from the checkpoint's own image processor."""

    def __init__(self, section: VideoMAESection, device: torch.device) -> None:
        model, self._processor, digest = _make_model(section)
        config = model.config
        if section.sampling.frames != config.num_frames:
            raise RequestError(
                f"{_NAME}: this checkpoint takes clips of {config.num_frames} frames, "
                f"sampling.frames is {section.sampling.frames}"
            )
        spec = model_spec(
            section,
            device,
            dim=config.hidden_size,
            batch_size=16 if device.type == "cuda" else 1,
            short_side=processor_short_side(self._processor.size),
            memory_format=self.memory_format,
            identity={
                "extractor": _NAME,
                "revision": 1,
                "architecture": type(model).__name__,
                "weights": digest,
                "config": plain_config(config),
                "processor": plain_config(self._processor),
            },
            versions={"transformers": transformers.__version__},
        )
        super().__init__(section, device, model, spec)
        self._encoder: Any = model if isinstance(model, VideoMAEModel) else model.videomae
        self._fc_norm: Any = getattr(model, "fc_norm", None)
        self._check_pixels(config)

    def _prepare(self, frames_THWC: np.ndarray) -> torch.Tensor:
        pixels = self._processor(list(frames_THWC), return_tensors="pt", input_data_format="channels_last")
        clip_TCHW: torch.Tensor = pixels["pixel_values"][0]
        return clip_TCHW

    def _features(self, clips: torch.Tensor) -> torch.Tensor:
        tokens_BLD: torch.Tensor = self._encoder(pixel_values=clips).last_hidden_state
        features_BD = tokens_BLD.mean(dim=1)
        return features_BD if self._fc_norm is None else self._fc_norm(features_BD)

    def _check_pixels(self, config: Any) -> None:
        expected = (config.num_frames, config.num_channels, config.image_size, config.image_size)
        found = tuple(self.prepare(np.zeros((config.num_frames, 64, 64, 3), np.uint8)).shape)
        if found != expected:
            raise RequestError(f"{_NAME}: the image processor makes clips {found}, the model takes {expected}")


def _make_model(section: VideoMAESection) -> tuple[Any, Any, dict[str, str]]:
    """The model, its image processor, and what its weights are."""
    if section.weights == RANDOM:
        model = random_model(_NAME, section.seed, lambda: VideoMAEModel(VideoMAEConfig()))
        # The class's own defaults are 0.5 and 0.5, which no published checkpoint was trained with.
        processor = VideoMAEImageProcessor(image_mean=_IMAGENET_MEAN, image_std=_IMAGENET_STD)
        return model, processor, {"state_xxh3_128": state_digest(model.state_dict())}
    folder = find_checkpoint(section.weights, _NAME, _EXAMPLE)
    config = VideoMAEConfig.from_pretrained(folder, local_files_only=True)
    named = (config.architectures or ["VideoMAEModel"])[0]
    if named not in _ARCHITECTURES:
        raise RequestError(f"{_NAME}: {folder} is a checkpoint of {named}, expected one of {', '.join(_ARCHITECTURES)}")
    model = load_checkpoint(_ARCHITECTURES[named], folder, _NAME, config=config)
    return model, load_processor(VideoMAEImageProcessor, folder, _NAME), checkpoint_digest(folder)
