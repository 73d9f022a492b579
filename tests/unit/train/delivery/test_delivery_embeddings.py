"""Stored embeddings of captions in batches, whoever makes them; and batches without, as they were."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from shared.errors import StoreError
from shared.store import open_store
from train.batch import Batch
from train.data import WindowData, WindowDataset, whole_batch
from train.delivery.config import DataConfig
from train.delivery.loader import Loader
from train.delivery.windows import first_captions


@pytest.fixture(scope="module")
def store(tmp_path_factory, small_store):
    path = small_store(tmp_path_factory.mktemp("stored") / "store", splits={"train": 6, "val": 4}, encoder="e")
    return open_store(path)


@pytest.fixture(scope="module")
def data(store):
    return WindowData(store, "default", "train", embeddings=True)


def test_each_slot_holds_the_embedding_of_its_caption(store, data):
    batch = data.batch(first_captions(np.arange(18), data.bag_W, 3))
    assert (batch.caption_BKE.shape, batch.caption_BKE.dtype) == ((18, 3, 7), torch.float16)
    for window in range(18):
        bag = data.windows.candidates_of(window)
        for k in range(3):
            expected = data.manifest.embeddings[bag[k]] if k < len(bag) else np.zeros(7)
            assert batch.caption_BKE[window, k].tolist() == expected.tolist()
    plain = WindowData(store, "default", "train").batch(first_captions(np.arange(18), data.bag_W, 3))
    assert plain.caption_BKE is None
    assert set(batch.present) - set(plain.present) == {"caption_BKE"}
    for name, tensor in plain.present.items():
        assert torch.equal(tensor, batch.present[name])


@pytest.mark.parametrize("workers", [0, 2])
def test_the_thread_and_the_processes_of_a_loader(data, workers):
    picked = [first_captions(np.arange(start, start + 4), data.bag_W, 2) for start in range(0, 12, 4)]
    with Loader([data], [data.shape(4, 2)], config=DataConfig(workers=workers)) as loader:
        for selection, batch in zip(picked, loader.batches(picked.__getitem__, 0, 3), strict=True):
            for name, tensor in data.batch(selection).present.items():
                assert torch.equal(batch.present[name], tensor), name


@pytest.mark.parametrize("collate", [None, whole_batch])
@pytest.mark.parametrize("embeddings", [False, True])
def test_torchs_own_loader(store, data, collate, embeddings):
    dataset = WindowDataset(store.path, candidates=2, embeddings=embeddings)
    expected = data.batch(first_captions(np.arange(18), data.bag_W, 2)).caption_BKE
    read = [Batch(**batch) for batch in DataLoader(dataset, batch_size=6, collate_fn=collate)]
    assert all((batch.caption_BKE is not None) == embeddings for batch in read)
    if embeddings:
        assert torch.equal(torch.cat([batch.caption_BKE for batch in read]), expected)
        assert read[0].to(torch.device("meta")).caption_BKE.device.type == "meta"


def test_they_travel_by_name_and_are_part_of_the_identity(store, data):
    again = pickle.loads(pickle.dumps(data))
    selection = first_captions(np.arange(5), data.bag_W, 2)
    assert torch.equal(again.batch(selection).caption_BKE, data.batch(selection).caption_BKE)
    assert data.identity["embeddings"] == {"dtype": "float16", "dim": 7, "identity": {"weights": "e"}}
    assert "embeddings" not in WindowData(store, "default", "train").identity
    assert data.most_bytes(0) == data.manifest.info.captions * 14


def test_a_set_without_them_is_refused(tmp_path, small_store):
    path = small_store(tmp_path / "store", splits={"train": 3})
    with pytest.raises(StoreError, match="set 'default' has no caption embeddings: make it again with `embeddings`"):
        WindowData(open_store(path), "default", "train", embeddings=True)
