"""The stored embeddings of a manifest set's captions, many captions in one call."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shared.row_sources import ShardRows, row_source
from shared.schema import EmbeddingInfo


class EmbeddingTable:
    """Vectors in one file, a row a caption; read as rows of features are, so that a file that is cut is an error."""

    def __init__(self, file: Path, info: EmbeddingInfo, captions: int) -> None:
        self._file = ShardRows(file, "npy", (captions, info.dim), info.dtype)
        self._source = row_source([self._file], "auto")

    def fill(self, captions_BK: np.ndarray, out_BKE: np.ndarray) -> None:
        """out_BKE (of the set's dtype): the vector of each caption, zeros for none.

        captions_BK: integers, -1 for none. Raises DamageFound where the file was cut since it was opened, IndexError
        for a caption that there is not.
        """
        caption_N, size = captions_BK.reshape(-1), self._file.row_bytes
        if caption_N.max(initial=-1) >= self._file.shape[0]:
            raise IndexError(f"caption {caption_N.max()} of {self._file.shape[0]} is asked for")
        if out_BKE.dtype != np.dtype(self._file.dtype) or not out_BKE.flags.c_contiguous:
            raise ValueError(f"out is {out_BKE.dtype}{out_BKE.shape}, expected contiguous {self._file.dtype}")
        at_N = np.flatnonzero(caption_N >= 0)
        if len(at_N) < len(caption_N):
            out_BKE[captions_BK < 0] = 0
        if len(at_N):
            start_N = caption_N[at_N].astype(np.int64) * size
            flat = out_BKE.reshape(-1).view(np.uint8)
            self._source.copy(np.zeros_like(at_N), start_N, np.full_like(at_N, size), flat, at_N * size)
