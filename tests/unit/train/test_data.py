from __future__ import annotations

import pickle
import shutil

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset

from shared.errors import DamageFound, RequestError, StoreError
from shared.store import open_store
from train.batch import Batch
from train.data import DataConfig, WindowData, WindowDataset, first_captions, prefetched
from train.order import Selection


@pytest.fixture(scope="module")
def store(tmp_path_factory, small_store):
    return open_store(small_store(tmp_path_factory.mktemp("data") / "store", splits={"train": 6, "val": 4}))


def everything(data, candidates=3):
    return data.batch(first_captions(np.arange(len(data)), data.bag_W, candidates))


def test_batch_holds_the_rows_and_tokens_of_each_window(store):
    data = WindowData(store, "default", "train")
    batch = everything(data)
    assert len(batch) == len(data) == 18
    assert batch.video_BTD.shape == (18, 5, 8)
    assert batch.tokens_BKL.shape == (18, 3, 6)
    assert batch.tokens_BKL.dtype == batch.video_ids_B.dtype == torch.int64
    for window in range(18):
        video = data.manifest.video_ids[data.windows.video_W[window]]
        first, rows = data.windows.first_row_W[window], data.windows.rows_W[window]
        stored = data.stream.read(int(data.stream.index_of([video])[0]))[first : first + rows]
        assert batch.video_mask_BT[window].sum() == rows
        assert (batch.video_BTD[window, :rows].numpy() == stored).all()
        for k, caption in enumerate(data.windows.candidates_of(window)):
            ids = data.manifest.caption_tokens(int(caption))
            assert batch.tokens_BKL[window, k, : len(ids)].tolist() == ids.tolist()
            assert (batch.tokens_BKL[window, k, len(ids) :] == 0).all()
        assert batch.caption_mask_BK[window].sum() == len(data.windows.candidates_of(window))
    assert batch.video_ids_B.tolist() == np.repeat(np.arange(6), 3).tolist()


def test_long_windows_give_evenly_spaced_rows(store):
    full, cut = (
        WindowData(store, "default", "train"),
        WindowData(store, "default", "train", config=DataConfig(max_rows=2)),
    )
    whole, few = everything(full), everything(cut)
    assert few.video_BTD.shape == (18, 2, 8)
    expected = {2: [0, 1], 3: [0, 2], 4: [1, 3], 5: [1, 3]}
    for window in range(18):
        rows = expected[int(full.windows.rows_W[window])]
        assert (few.video_BTD[window] == whole.video_BTD[window, rows]).all()


def test_chosen_captions_are_the_ones_that_come(store):
    data = WindowData(store, "default", "train", config=DataConfig(max_tokens=1))
    window = int(np.argmax(data.bag_W))
    batch = data.batch(Selection(np.array([window]), np.array([[2, -1, 0]])))
    bag = data.windows.candidates_of(window)
    assert batch.tokens_BKL.shape == (1, 3, 1)
    assert batch.caption_mask_BK.tolist() == [[True, False, True]]
    assert batch.tokens_BKL[0, 0, 0] == data.manifest.caption_tokens(int(bag[2]))[0]
    assert batch.tokens_BKL[0, 1, 0] == 0
    assert batch.tokens_BKL[0, 2, 0] == data.manifest.caption_tokens(int(bag[0]))[0]


def test_a_window_is_the_same_in_any_company(store):
    data = WindowData(store, "default", "train")
    whole = everything(data)
    alone = data.batch(first_captions(np.array([4]), data.bag_W, 3))
    for name, tensor in vars(alone).items():
        assert (tensor[0] == getattr(whole, name)[4]).all()


def test_dataset_through_torchs_own_loader(store):
    dataset = WindowDataset(store.path, split="train", candidates=3)
    whole = everything(dataset.data)
    start = 0
    for collated in DataLoader(dataset, batch_size=5):
        batch = Batch(**collated)
        for name, tensor in vars(batch).items():
            assert (tensor == getattr(whole, name)[start : start + 5]).all()
        start += len(batch)
    assert start == 18
    with pytest.raises(IndexError):
        dataset[18]


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
    loader = DataLoader(Subset(dataset, range(4)), num_workers=1, multiprocessing_context=start)
    for expected, batch in zip(alone, loader, strict=True):
        assert (batch["video_BTD"][0] == expected).all()


def test_a_dataset_of_a_store_that_has_changed_is_refused(tmp_path, small_store):
    path = small_store(tmp_path / "store", splits={"train": 6})
    data = pickle.dumps(WindowDataset(path))
    shutil.rmtree(path)
    small_store(path, splits={"train": 5})
    with pytest.raises(StoreError, match="was changed while it was in use"):
        pickle.loads(data)


@pytest.mark.parametrize(("verify", "mapping"), [("never", "pread"), ("always", "mmap"), ("always", "pread")])
def test_rows_are_the_same_however_they_are_read(store, verify, mapping):
    expected = everything(WindowData(store, "default", "train"))
    found = everything(WindowData(store, "default", "train", config=DataConfig(verify=verify, mapping=mapping)))
    for name, tensor in vars(found).items():
        assert (tensor == getattr(expected, name)).all()


def test_rows_can_be_copied_to_a_local_disk_first(store, tmp_path):
    expected = everything(WindowData(store, "default", "train"))
    staged = WindowData(store, "default", "train", config=DataConfig(stage=tmp_path / "local"))
    assert list((tmp_path / "local").glob("*/*.npy"))
    for data in (staged, pickle.loads(pickle.dumps(staged))):
        for name, tensor in vars(everything(data)).items():
            assert (tensor == getattr(expected, name)).all()
    with pytest.raises(RequestError, match="is inside the store"):
        WindowData(store, "default", "train", config=DataConfig(stage=store.path / "copies"))


def test_what_the_store_does_not_hold_is_refused_by_name(store):
    with pytest.raises(StoreError, match="no windows of split 'test'; it has train, val"):
        WindowData(store, "default", "test")
    with pytest.raises(StoreError, match="no manifest set 'other'"):
        WindowData(store, "other", "train")
    with pytest.raises(RequestError, match="cut for stream 'default', not for 's3d'"):
        WindowData(store, "default", "train", stream="s3d")


def test_windows_that_leave_their_video_are_damage(store, monkeypatch):
    opened = store.manifest_set("default")
    table = opened.windows("train")
    table.rows_W[7] = 99
    monkeypatch.setattr(type(opened), "windows", lambda self, split: table)
    with pytest.raises(DamageFound, match="the first is window 7 of video 'train002'"):
        WindowData(store, "default", "train")


def test_prefetch_keeps_the_order_and_hands_over_errors():
    def make(number):
        if number == 7:
            raise ValueError("seven")
        return number

    taken = []
    with pytest.raises(ValueError, match="seven"), prefetched(make, 3, 20, 2) as items:
        taken.extend(items)
    assert taken == [3, 4, 5, 6]
    with prefetched(make, 8, 20, 3) as items:
        assert next(items) == 8
    with prefetched(make, 5, 5, 2) as items:
        assert list(items) == []
