"""Embeddings of the captions of a set, as they are stored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from preprocess.captions.encoders import EmbeddingsConfig, load_encoder
from shared.errors import RequestError
from shared.schema import EmbeddingInfo


class CaptionEmbedder:
    """info: what the set says of its embeddings."""

    def __init__(self, config: EmbeddingsConfig) -> None:
        """Raises what `load_encoder` raises."""
        self._config = config
        self._encoder = load_encoder(config)
        identity = {**self._encoder.identity, "normalize": config.normalize}
        self.info = EmbeddingInfo(dtype=config.dtype, dim=self._encoder.dim, identity=identity)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """(N, dim) of the set's dtype. Raises RequestError for numbers that the dtype cannot hold."""
        vectors_ND = self._encoder.embed(texts)
        if self._config.normalize:
            length_N1 = np.sqrt((vectors_ND * vectors_ND).sum(axis=1, keepdims=True))
            vectors_ND = vectors_ND / np.where(length_N1 > 0, length_N1, 1)
        greatest = float(np.abs(vectors_ND).max(initial=0))
        if greatest > float(np.finfo(self._config.dtype).max):
            raise RequestError(f"embeddings reach {greatest:.4g}, too much for {self._config.dtype}: use float32")
        return vectors_ND.astype(self._config.dtype)
