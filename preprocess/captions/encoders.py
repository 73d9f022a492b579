"""What a config may say of frozen text encoders, and loading one. Imports no torch before one is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
from pydantic import Field

from shared.config import Config
from shared.schema import Name


class EncoderConfig(Config):
    """A text encoder of the `transformers` library with its tokenizer.

    weights: a folder, `package:NAME/folder`, or an id of the hub that is in the local cache: nothing is fetched.
    pooling: `projection` is CLIP's text embedding; `mean` (over the tokens) and `first` (the first token) are of any
    encoder's last layer.
    max_length: most ids of a caption, special ones included. batch_size: captions per call, always so many.
    device: what encodes. precision: of the model on a GPU (autocast); a CPU always computes in float32.
    """

    weights: str = Field(min_length=1)
    pooling: Literal["projection", "mean", "first"] = "projection"
    max_length: int = Field(default=32, ge=3)
    batch_size: int = Field(default=64, ge=1)
    device: Literal["cpu", "cuda"] = "cpu"
    precision: Literal["float32", "bf16", "fp16"] = "float32"


class EmbeddingsConfig(EncoderConfig):
    """Embeddings of the captions of a set. normalize: vectors of length 1. dtype: of the stored numbers."""

    normalize: bool = False
    dtype: Literal["float16", "float32"] = "float16"


class SimilarityConfig(EncoderConfig):
    """least: captions whose greatest cosine with a row they overlap is lower are left out.

    stream: of the rows, made by the `clip` extractor from the same weights; null is the set's own. A caption that no
    row of it overlaps stays.
    """

    least: float = Field(ge=-1, le=1)
    stream: Name | None = None


class TextEncoder(Protocol):
    """dim: numbers of an embedding. weights: xxh3-128 of the files of weights. identity: all that decides a vector."""

    dim: int
    weights: dict[str, str]
    identity: dict[str, Any]

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 (N, dim). The vector of a text does not depend on the others. Zeros for a text without any token."""
        ...


def load_encoder(config: EncoderConfig) -> TextEncoder:
    """Raises EnvironmentLacking for weights or a device that are not here, RequestError for ones that do not fit."""
    from preprocess.captions.text_tower import TextTower  # torch: only where it is asked for

    return TextTower(config)
