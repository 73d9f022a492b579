"""Frozen text encoders of the transformers library: the text tower of CLIP, or the last layer of any encoder.

Texts are computed in batches of one fixed shape, (batch_size, max_length), one thread: a vector depends on its text
alone. CLIP: Radford et al. (arXiv 2103.00020). Mean over tokens: Reimers and Gurevych (arXiv 1908.10084).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import snapshot_download
from transformers import AutoConfig, AutoModel, CLIPConfig, CLIPTextConfig, CLIPTextModelWithProjection

from preprocess.captions.encoders import EncoderConfig
from preprocess.captions.tokenise_hf import load_hugging_face
from preprocess.extract.checkpoint import checkpoint_digest, load_checkpoint, plain_config
from preprocess.extract.runtime import check_device, configure_torch_for_determinism
from shared.errors import EnvironmentLacking, RequestError
from shared.resources import resolve_resource

_NAME = "text encoder"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_OTHER_TOWER = ("vision_model.", "visual_projection.", "logit_scale", "text_model.embeddings.position_ids")
_HEADS = ("cls.", "lm_head.", "embeddings.position_ids")
_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class TextTower:
    """See `TextEncoder`."""

    def __init__(self, config: EncoderConfig) -> None:
        configure_torch_for_determinism()
        self._device = torch.device(config.device)
        check_device(self._device)
        folder = _local_checkpoint(config.weights)
        self._tokenizer = load_hugging_face(str(folder), config.max_length, None)
        model = _load_projection(folder) if config.pooling == "projection" else _load_encoder(folder)
        self._model = model.eval().requires_grad_(False).to(self._device)
        self._config = config
        _check_sizes(model.config, config, self._tokenizer.identity["vocab_size"])
        self._autocast = _AUTOCAST.get(config.precision) if config.device == "cuda" else None
        self.dim = int(model.config.projection_dim if config.pooling == "projection" else model.config.hidden_size)
        self.weights = checkpoint_digest(folder)
        self.identity: dict[str, Any] = {
            "encoder": type(model).__name__,
            "weights": self.weights,
            "config": plain_config(model.config),
            "tokenizer": self._tokenizer.identity,
            "pooling": config.pooling,
            "max_length": config.max_length,
            "batch_size": config.batch_size,
            "precision": config.precision if self._autocast else "float32",
        }

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        ids = self._tokenizer.encode(texts).ids
        size = self._config.batch_size
        parts = [self._embed_batch(ids[first : first + size]) for first in range(0, len(ids), size)]
        return np.concatenate(parts) if parts else np.zeros((0, self.dim), np.float32)

    def _embed_batch(self, ids: list[list[int]]) -> np.ndarray:
        shape = self._config.batch_size, self._config.max_length
        ids_BL = np.full(shape, self._tokenizer.identity["pad_id"], np.int64)
        mask_BL = np.zeros(shape, np.int64)
        mask_BL[:, 0] = 1  # attention to nothing at all would be NaN
        for row, own in enumerate(ids):
            ids_BL[row, : len(own)] = own
            mask_BL[row, : len(own)] = 1
        vectors_BD = self._compute(torch.from_numpy(ids_BL), torch.from_numpy(mask_BL))[: len(ids)]
        vectors_BD[[not own for own in ids]] = 0
        if not np.isfinite(vectors_BD).all():
            raise RequestError(f"{_NAME} {self._config.weights} gives numbers that are not finite; try float32")
        return vectors_BD

    def _compute(self, ids_BL: torch.Tensor, mask_BL: torch.Tensor) -> np.ndarray:
        ids_BL, mask_BL = ids_BL.to(self._device), mask_BL.to(self._device)
        autocast = torch.autocast(self._device.type, dtype=self._autocast, enabled=self._autocast is not None)
        with torch.inference_mode(), autocast:
            output = self._model(input_ids=ids_BL, attention_mask=mask_BL)
            if self._config.pooling == "projection":
                vectors_BD = output.text_embeds
            elif self._config.pooling == "first":
                vectors_BD = output.last_hidden_state[:, 0]
            else:
                weight_BL1 = mask_BL[..., None].float()
                vectors_BD = (output.last_hidden_state.float() * weight_BL1).sum(1) / weight_BL1.sum(1)
        vectors: np.ndarray = vectors_BD.float().cpu().contiguous().numpy()
        return vectors


def _local_checkpoint(weights: str) -> Path:
    if not _HUB_ID.fullmatch(weights) or Path(weights).exists():
        folder = resolve_resource(weights)
        if not folder.is_dir():
            raise EnvironmentLacking(
                f"{_NAME} {weights}: no such folder; give one with config.json, weights and a tokenizer"
            )
        return folder
    try:
        return Path(snapshot_download(weights, local_files_only=True))
    except (OSError, ValueError):  # not in the cache, or no valid id
        raise EnvironmentLacking(
            f"{_NAME} {weights!r} is not in the local cache and nothing is fetched: get it once with "
            f"`hf download {weights}`, or give a folder"
        ) from None


def _load_projection(folder: Path) -> Any:
    config = _read_config(folder)
    if isinstance(config, CLIPConfig):
        # The width of the projection stands outside the text section, which would fall back to its default.
        config.text_config.projection_dim = config.projection_dim
        config = config.text_config
    if not isinstance(config, CLIPTextConfig):
        raise RequestError(
            f"{_NAME}: {folder} is a checkpoint of {config.model_type}, and `pooling: projection` is for clip or "
            "clip_text_model: use `mean` or `first`"
        )
    return load_checkpoint(CLIPTextModelWithProjection, folder, _NAME, config=config, ignore=_OTHER_TOWER)


def _load_encoder(folder: Path) -> Any:
    config = _read_config(folder)
    if getattr(config, "is_encoder_decoder", False) or not hasattr(config, "hidden_size"):
        raise RequestError(
            f"{_NAME}: {folder} is a checkpoint of {config.model_type}; `pooling: mean` and `first` are for an encoder "
            "of text alone (bert, mpnet, ...), `projection` is for clip"
        )
    return load_checkpoint(AutoModel, folder, _NAME, config=config, ignore=_HEADS)


def _read_config(folder: Path) -> Any:
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise RequestError(f"{_NAME}: {folder}/config.json cannot be read: {reason}") from None


def _check_sizes(model: Any, config: EncoderConfig, tokens: int) -> None:
    if config.max_length > model.max_position_embeddings:
        raise RequestError(
            f"max_length {config.max_length} is more than the {model.max_position_embeddings} positions of {_NAME} "
            f"{config.weights}"
        )
    if tokens > model.vocab_size:
        raise RequestError(
            f"{_NAME} {config.weights}: its tokenizer has {tokens} tokens, its model {model.vocab_size} embeddings"
        )
