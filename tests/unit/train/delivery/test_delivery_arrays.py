from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from train.batch import Batch
from train.delivery.arrays import BatchArrays, BatchShape, layout, request_layout
from train.delivery.handing_over import Slot, on_device

SHAPES = [
    BatchShape(3, 5, 7, 2, 4, "float16"),
    BatchShape(1, 1, 1, 1, 1, "float32"),
    BatchShape(17, 3, 512, 5, 32, "float32"),
]
STORED = [replace(SHAPES[0], embedding=9), replace(SHAPES[2], embedding=384, embedding_dtype="float32")]


@pytest.mark.parametrize("shape", SHAPES + STORED)
def test_fields_follow_one_another_at_multiples_of_a_cache_line(shape):
    for fields, size in (layout(shape), request_layout(shape.clips, shape.candidates)):
        end = 0
        for field in fields:
            assert field.start % 64 == 0
            assert end <= field.start < end + 64
            end = field.start + field.bytes
        assert end <= size < end + 64


@pytest.mark.parametrize("shape", SHAPES + STORED)
def test_a_block_of_memory_holds_a_batch(shape):
    draw = np.random.default_rng(0)
    given = BatchArrays.empty(shape)
    for array in given.present.values():
        array[...] = draw.integers(0, 2, array.shape)
    block = np.zeros(shape.bytes, np.uint8)
    placed = BatchArrays.within(block, shape)
    for name, array in given.present.items():
        getattr(placed, name)[...] = array
    for batch in (Slot().hand_out(placed), on_device(torch.from_numpy(block), shape)):
        fields = list(Batch.__dataclass_fields__)
        assert list(batch.present) == list(given.present) == (fields if shape.embedding else fields[:-1])
        for name, array in given.present.items():
            tensor = getattr(batch, name)
            assert tensor.shape == array.shape
            assert tensor.numpy().dtype == array.dtype
            np.testing.assert_array_equal(tensor.numpy(), array)


@pytest.mark.parametrize(("plain", "stored"), [(SHAPES[0], STORED[0]), (SHAPES[2], STORED[1])])
def test_stored_embeddings_lie_behind_all_that_is_there_without_them(plain, stored):
    assert layout(stored).fields[:-1] == layout(plain).fields
    assert layout(stored).fields[-1].start == plain.bytes
    assert BatchArrays.empty(plain).caption_BKE is None
