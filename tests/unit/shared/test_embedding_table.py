"""Embeddings of captions: each where it belongs, and nothing from a file that was cut or changed."""

from __future__ import annotations

import os
import pickle
import shutil

import numpy as np
import pytest

from shared import row_sources
from shared.embedding_table import EmbeddingTable
from shared.errors import DamageFound, StoreError
from shared.schema import EmbeddingInfo
from shared.shard_writer import npy_bytes
from shared.store import open_store

BOTH = pytest.mark.parametrize("mapped", [True, False])


@pytest.fixture
def made(tmp_path):
    """`made(captions)` -> the table of that many random vectors, the vectors, and their file."""

    def make(captions, dim=5, dtype="float32"):
        vectors = np.random.RandomState(1).standard_normal((captions, dim)).astype(dtype)
        file = tmp_path / "embeddings.npy"
        file.write_bytes(npy_bytes(vectors))
        return EmbeddingTable(file, EmbeddingInfo(dtype=dtype, dim=dim, identity={}), captions), vectors, file

    return make


@BOTH
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_each_caption_has_its_own_and_none_has_zeros(made, monkeypatch, mapped, dtype):
    monkeypatch.setattr(row_sources, "can_copy_mapped", lambda: mapped)
    table, vectors, _ = made(3000, dtype=dtype)
    caption_BK = np.random.RandomState(2).randint(-1, 3000, (600, 5))
    caption_BK[7] = -1
    out_BKE = np.full((600, 5, 5), 9, dtype)
    table.fill(caption_BK, out_BKE)
    np.testing.assert_array_equal(out_BKE, np.where(caption_BK[..., None] >= 0, vectors[caption_BK], 0))


def test_nothing_but_empty_slots(made):
    table, _, _ = made(0)
    out_BKE = np.ones((2, 3, 5), np.float32)
    table.fill(np.full((2, 3), -1), out_BKE)
    assert not out_BKE.any()
    table.fill(np.empty((0, 3), np.int64), np.empty((0, 3, 5), np.float32))


def test_what_does_not_fit_is_refused(made):
    table, _, _ = made(4)
    with pytest.raises(IndexError, match="caption 4 of 4"):
        table.fill(np.array([[0, 4]]), np.empty((1, 2, 5), np.float32))
    for out_BKE in (np.empty((1, 1, 5), np.float16), np.empty((1, 1, 10), np.float32)[..., ::2]):
        with pytest.raises(ValueError, match="expected contiguous float32"):
            table.fill(np.array([[0]]), out_BKE)


@BOTH
def test_a_file_that_is_cut_meanwhile_is_damage(made, monkeypatch, mapped):
    monkeypatch.setattr(row_sources, "can_copy_mapped", lambda: mapped)
    table, _, file = made(5000)
    out_BKE = np.empty((1, 1, 5), np.float32)
    table.fill(np.array([[1]]), out_BKE)
    os.truncate(file, 60_000)
    with pytest.raises(DamageFound, match=r"embeddings\.npy was shortened"):
        table.fill(np.array([[4999]]), out_BKE)


def test_a_set_reads_its_embeddings_checked_and_again_elsewhere(tmp_path, small_store):
    path = small_store(tmp_path / "store", encoder="e")
    manifest = open_store(path).manifest_set("default")
    caption_BK = np.array([[3, -1], [0, 5]])
    found = manifest.caption_embeddings(caption_BK)
    assert (found.shape, found.dtype) == ((2, 2, 7), np.float16)
    expected = np.where(caption_BK[..., None] >= 0, manifest.embeddings[caption_BK], 0)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(manifest)).caption_embeddings(caption_BK), expected)

    shutil.copytree(path, tmp_path / "changed")
    (file,) = (tmp_path / "changed" / "manifests").glob("*/embeddings.npy")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamageFound, match=r"embeddings\.npy is damaged: content changed"):
        open_store(tmp_path / "changed").manifest_set("default").caption_embeddings(caption_BK)


def test_a_set_without_embeddings_says_how_to_get_them(tmp_path, small_store):
    manifest = open_store(small_store(tmp_path / "store")).manifest_set("default")
    with pytest.raises(StoreError, match="no caption embeddings: make it again with `embeddings` in its config"):
        manifest.caption_embeddings(np.array([[0]]))
