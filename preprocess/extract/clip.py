"""`clip`: the vision tower of a CLIP checkpoint with its projection, on single frames.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision" (arXiv 2103.00020).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoConfig, CLIPConfig, CLIPImageProcessor, CLIPVisionConfig, CLIPVisionModelWithProjection

from preprocess.extract.checkpoint import (
    checkpoint_digest,
    find_checkpoint,
    load_checkpoint,
    load_processor,
    plain_config,
    processor_short_side,
)
from preprocess.extract.model_extractor import ModelExtractor, model_spec
from preprocess.extract.sections import ClipSection
from preprocess.extract.weights import RANDOM, random_model, state_digest
from shared.errors import RequestError

_NAME = "clip"
_EXAMPLE = "openai/clip-vit-base-patch32"
_OTHER_TOWER = ("text_model.", "text_projection.", "logit_scale", "vision_model.embeddings.position_ids")


class ClipExtractor(ModelExtractor):
    """Prepared clips are float (3, H, W), from the checkpoint's own image processor."""

    def __init__(self, section: ClipSection, device: torch.device) -> None:
        model, self._processor, digest = _make_model(section)
        config = model.config
        spec = model_spec(
            section,
            device,
            dim=config.projection_dim,
            batch_size=64 if device.type == "cuda" else 4,
            short_side=processor_short_side(self._processor.size),
            memory_format=self.memory_format,
            identity={
                "extractor": _NAME,
                "revision": 1,
                "weights": digest,
                "config": plain_config(config),
                "processor": plain_config(self._processor),
            },
            versions={"transformers": transformers.__version__},
        )
        super().__init__(section, device, model, spec)
        self._check_pixels(config)

    def _prepare(self, frames_THWC: np.ndarray) -> torch.Tensor:
        pixels = self._processor(frames_THWC[0], return_tensors="pt", input_data_format="channels_last")
        image_CHW: torch.Tensor = pixels["pixel_values"][0]
        return image_CHW

    def _features(self, clips: torch.Tensor) -> torch.Tensor:
        image_embeds_BD: torch.Tensor = self._model(pixel_values=clips).image_embeds
        return image_embeds_BD

    def _check_pixels(self, config: Any) -> None:
        expected = (config.num_channels, config.image_size, config.image_size)
        found = tuple(self.prepare(np.zeros((1, 64, 64, 3), np.uint8)).shape)
        if found != expected:
            raise RequestError(f"{_NAME}: the image processor makes images {found}, the model takes {expected}")


def _make_model(section: ClipSection) -> tuple[Any, Any, dict[str, str]]:
    """The vision tower, its image processor, and what its weights are."""
    if section.weights == RANDOM:
        model = random_model(_NAME, section.seed, lambda: CLIPVisionModelWithProjection(CLIPVisionConfig()))
        return model, CLIPImageProcessor(), {"state_xxh3_128": state_digest(model.state_dict())}
    folder = find_checkpoint(section.weights, _NAME, _EXAMPLE)
    model = load_checkpoint(
        CLIPVisionModelWithProjection, folder, _NAME, config=_vision_config(folder), ignore=_OTHER_TOWER
    )
    return model, load_processor(CLIPImageProcessor, folder, _NAME), checkpoint_digest(folder)


def _vision_config(folder: Any) -> CLIPVisionConfig:
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if isinstance(config, CLIPConfig):
        # The width of the projection stands outside the vision section, which would fall back to its default.
        config.vision_config.projection_dim = config.projection_dim
        return config.vision_config
    if isinstance(config, CLIPVisionConfig):
        return config
    raise RequestError(f"{_NAME}: {folder} is a checkpoint of {config.model_type}, expected clip or clip_vision_model")
