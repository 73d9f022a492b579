from __future__ import annotations

import pickle
import shutil

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset

from shared.errors import StoreError
from shared.store import open_store
from train.batch import Batch
from train.data import WindowData, WindowDataset, dataloader_defaults, whole_batch
from train.delivery.sizing import workers_for
from train.delivery.windows import first_captions


@pytest.fixture(scope="module")
def store(tmp_path_factory, small_store):
    return open_store(small_store(tmp_path_factory.mktemp("data") / "store", splits={"train": 6, "val": 4}))


def everything(data, candidates=3):
    return data.batch(first_captions(np.arange(len(data)), data.bag_W, candidates))


def test_a_batch_is_tensors(store):
    batch = everything(WindowData(store, "default", "train"))
    assert len(batch) == 18
    assert {name: tensor.dtype for name, tensor in batch.present.items()} == {
        "video_BTD": torch.float16,
        "video_mask_BT": torch.bool,
        "tokens_BKL": torch.int32,
        "token_mask_BKL": torch.bool,
        "caption_mask_BK": torch.bool,
        "video_ids_B": torch.int64,
    }


def test_a_window_is_the_same_in_any_company(store):
    data = WindowData(store, "default", "train")
    whole = everything(data)
    alone = data.batch(first_captions(np.array([4]), data.bag_W, 3))
    for name, tensor in alone.present.items():
        assert (tensor[0] == getattr(whole, name)[4]).all()


@pytest.mark.parametrize("collate", [None, whole_batch])
def test_dataset_through_torchs_own_loader(store, collate):
    dataset = WindowDataset(store.path, split="train", candidates=3)
    whole = everything(dataset.data)
    start = 0
    for collated in DataLoader(dataset, batch_size=5, collate_fn=collate):
        batch = Batch(**collated)
        for name, tensor in batch.present.items():
            assert (tensor == getattr(whole, name)[start : start + 5]).all()
        start += len(batch)
    assert start == 18
    for window in (18, -1):
        with pytest.raises(IndexError):
            dataset[window]


def test_fetched_windows_are_a_sequence_of_samples(store):
    dataset = WindowDataset(store.path, split="train")
    fetched = dataset.__getitems__([4, 2, 0])
    assert len(fetched) == len(list(fetched)) == len(fetched[:]) == 3
    for place, window in enumerate([4, 2, 0]):
        for name, tensor in dataset[window].items():
            assert torch.equal(fetched[place][name], tensor)
            assert torch.equal(fetched[place - 3][name], tensor)


def test_dataset_pickles_and_reopens(store):
    dataset = WindowDataset(store.path, split="val")
    data = pickle.dumps(dataset)
    assert len(data) < 4096
    again = pickle.loads(data)
    assert (again[3]["video_BTD"] == dataset[3]["video_BTD"]).all()


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_read_the_same(store, start):
    dataset = WindowDataset(store.path, split="val")
    alone = [dataset[window]["video_BTD"] for window in range(4)]
    settings = dataloader_defaults(ranks=1, cores=2)
    assert settings["num_workers"] == workers_for(2, 1) == 1
    parts = Subset(dataset, range(4))
    loader = DataLoader(parts, collate_fn=whole_batch, multiprocessing_context=start, **settings)
    for expected, batch in zip(alone, loader, strict=True):
        assert (batch["video_BTD"][0] == expected).all()


def test_a_dataset_of_a_store_that_has_changed_is_refused(tmp_path, small_store):
    path = small_store(tmp_path / "store", splits={"train": 6})
    data = pickle.dumps(WindowDataset(path))
    shutil.rmtree(path)
    small_store(path, splits={"train": 5})
    with pytest.raises(StoreError, match="was changed while it was in use"):
        pickle.loads(data)
