"""The arrays of one batch and where they lie in a block of memory: the same for whoever fills and whoever reads it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

# A cache line, and a multiple of every item: any field can be viewed in its own type, also on a GPU.
_ALIGN = 64


@dataclass(frozen=True)
class BatchShape:
    """B clips of T rows of D channels of `dtype`, K captions each of L tokens.

    embedding: numbers of each caption's stored embedding, of `embedding_dtype`; 0 for batches without.
    """

    clips: int
    rows: int
    dim: int
    candidates: int
    tokens: int
    dtype: str
    embedding: int = 0
    embedding_dtype: str = "float16"

    @property
    def bytes(self) -> int:
        """Of all arrays of such a batch, padding between them included."""
        return layout(self).bytes


class Field(NamedTuple):
    """One array in a block: at byte `start`."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def within(self, block: np.ndarray) -> np.ndarray:
        """A view of the array in a block of uint8."""
        return np.ndarray(self.shape, self.dtype, block, self.start)


class Layout(NamedTuple):
    """Fields in order, each at a multiple of 64 bytes, and what they take together."""

    fields: tuple[Field, ...]
    bytes: int


@dataclass(frozen=True)
class BatchArrays:
    """One rank's clips of one step, as `train.batch.Batch` has them.

    video_BTD: rows as stored, zeros where video_mask_BT (bool) is False. tokens_BKL: int32, the set's pad id where
    token_mask_BKL (bool) is False. caption_mask_BK: bool. video_ids_B: int64. caption_BKE: as stored, zeros where
    caption_mask_BK is False; None for a shape without embeddings.
    """

    video_BTD: np.ndarray
    video_mask_BT: np.ndarray
    tokens_BKL: np.ndarray
    token_mask_BKL: np.ndarray
    caption_mask_BK: np.ndarray
    video_ids_B: np.ndarray
    caption_BKE: np.ndarray | None = None

    @property
    def present(self) -> dict[str, np.ndarray]:
        """The arrays that there are, by name."""
        return {name: array for name, array in vars(self).items() if array is not None}

    @classmethod
    def within(cls, block: np.ndarray, shape: BatchShape) -> BatchArrays:
        """Views of a block of uint8, at least `shape.bytes` of it."""
        return cls(*(field.within(block) for field in layout(shape).fields))

    @classmethod
    def empty(cls, shape: BatchShape) -> BatchArrays:
        """New arrays with anything in them."""
        return cls(*(np.empty(field.shape, field.dtype) for field in layout(shape).fields))


@lru_cache(maxsize=256)
def layout(shape: BatchShape) -> Layout:
    """Where the arrays of a batch of this shape lie; fields are named and ordered as in BatchArrays."""
    clips, slots, words = shape.clips, (shape.clips, shape.candidates), (shape.clips, shape.candidates, shape.tokens)
    arrays: list[tuple[str, str, tuple[int, ...]]] = [
        ("video_BTD", shape.dtype, (clips, shape.rows, shape.dim)),
        ("video_mask_BT", "bool", (clips, shape.rows)),
        ("tokens_BKL", "int32", words),
        ("token_mask_BKL", "bool", words),
        ("caption_mask_BK", "bool", slots),
        ("video_ids_B", "int64", (clips,)),
    ]
    if shape.embedding:
        arrays.append(("caption_BKE", shape.embedding_dtype, (*slots, shape.embedding)))
    return placed(arrays)


@lru_cache(maxsize=256)
def request_layout(clips: int, candidates: int) -> Layout:
    """Where the numbers of the windows and captions lie that a batch is to be made of."""
    return placed([("window_B", "int64", (clips,)), ("choice_BK", "int64", (clips, candidates))])


def placed(arrays: list[tuple[str, str, tuple[int, ...]]]) -> Layout:
    """Fields one behind the other: (name, dtype, shape) each."""
    fields, start = [], 0
    for name, dtype, shape in arrays:
        field = Field(name, np.dtype(dtype), shape, start)
        fields.append(field)
        start += -(-field.bytes // _ALIGN) * _ALIGN
    return Layout(tuple(fields), start)
