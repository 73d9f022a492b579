"""Captions that do not describe what is shown: dropped by the similarity of their text with the rows they overlap.

For rows of the `clip` extractor and the text tower of the very same checkpoint, whose embeddings share a space (Radford
et al., arXiv 2103.00020). Reads rows of the store, and no video.
"""

from __future__ import annotations

import numpy as np

from preprocess.captions.encoders import SimilarityConfig, TextEncoder, load_encoder
from preprocess.captions.filters import Dropped
from preprocess.captions.types import Caption
from preprocess.captions.windows import rows_of
from shared.errors import RequestError
from shared.features import StreamReader


class SimilarityFilter:
    """Compares captions of one video with its rows in `stream`."""

    def __init__(self, config: SimilarityConfig, stream: StreamReader) -> None:
        """Raises RequestError for rows that the encoder's embeddings cannot be compared with, and as `load_encoder`."""
        encoder = load_encoder(config)
        _refuse_another_space(stream, encoder, config)
        self._config, self._encoder, self._stream = config, encoder, stream
        self.identity = {"encoder": encoder.identity, "stream": stream.entry.model_dump(mode="json")}

    def apply(self, video_id: str, captions: tuple[Caption, ...], dropped: Dropped) -> tuple[Caption, ...]:
        """The captions that stay, in their order; the others go into `dropped`, each with its cosine.

        Raises DamageFound for damaged rows.
        """
        dropped.note("similarity", (), "")
        number = int(self._stream.index_of([video_id])[0])
        if number < 0 or not captions:
            return captions
        cosine_N = self._cosines(number, captions)
        for caption, cosine in zip(captions, cosine_N.tolist(), strict=True):
            if cosine < self._config.least:
                dropped.note("similarity", [caption], f"cosine {cosine:.3f}")
        return tuple(caption for caption, low in zip(captions, cosine_N < self._config.least, strict=True) if not low)

    def _cosines(self, number: int, captions: tuple[Caption, ...]) -> np.ndarray:
        """float64 (N,): of each caption the greatest with a row it overlaps, to six digits; infinite without rows."""
        bounds_N2 = np.array([(caption.start, caption.end) for caption in captions], np.float64)
        first_N, rows_N = rows_of(bounds_N2, self._stream.spans(number))
        text_ND = _directions(self._encoder.embed([caption.text for caption in captions]))
        rows_RD = _directions(self._stream.read(number))
        cosine_N = np.full(len(captions), np.inf)
        for at in np.flatnonzero(rows_N):
            own_RD = rows_RD[first_N[at] : first_N[at] + rows_N[at]]
            # Summed row by row: a matrix product would depend on how many rows there are.
            cosine_N[at] = round(float((own_RD * text_ND[at]).sum(axis=1).max()), 6)
        return cosine_N


def _directions(rows_ND: np.ndarray) -> np.ndarray:
    """float64 (N, D): rows of length one; zeros stay zeros."""
    wide_ND = rows_ND.astype(np.float64)
    length_N1 = np.sqrt((wide_ND * wide_ND).sum(axis=1, keepdims=True))
    direction_ND: np.ndarray = wide_ND / np.where(length_N1 > 0, length_N1, 1)
    return direction_ND


def _refuse_another_space(stream: StreamReader, encoder: TextEncoder, config: SimilarityConfig) -> None:
    identity = stream.entry.identity.get("extractor")  # an imported stream has none
    extractor = identity if isinstance(identity, dict) else {}
    if extractor.get("extractor") != "clip":
        raise RequestError(
            f"filters.similarity compares captions with rows of the extractor `clip`; stream {stream.name!r} is of "
            f"{extractor.get('extractor')!r}: name another one as `filters.similarity.stream`"
        )
    if config.pooling != "projection":
        raise RequestError("filters.similarity needs `pooling: projection`: rows of `clip` are projected, too")
    if extractor.get("weights") != encoder.weights or stream.row_shape != (encoder.dim,):
        raise RequestError(
            f"filters.similarity: stream {stream.name!r} ({stream.row_shape[-1]} numbers a row) was not made by the "
            f"checkpoint {config.weights} ({encoder.dim} numbers a text): name the one that it was made by"
        )
