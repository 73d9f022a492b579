from __future__ import annotations

import pickle

import numpy as np
import pytest

from shared.errors import DamageFound, RequestError, StoreError
from shared.store import open_store
from train.delivery.arrays import BatchArrays
from train.delivery.config import DataConfig
from train.delivery.windows import WindowReader, first_captions
from train.order import Selection


@pytest.fixture(scope="module")
def store(tmp_path_factory, small_store):
    return open_store(small_store(tmp_path_factory.mktemp("windows") / "store", splits={"train": 6, "val": 4}))


def filled(reader, selection):
    """Into arrays that hold something else before."""
    arrays = BatchArrays.empty(reader.shape_of(selection))
    for array in arrays.present.values():
        array.view(np.uint8)[...] = 1
    reader.fill(selection, arrays)
    return arrays


def everything(reader, candidates=3):
    return filled(reader, first_captions(np.arange(len(reader)), reader.bag_W, candidates))


def test_a_batch_holds_the_rows_and_tokens_of_each_window(store):
    reader = WindowReader(store, "default", "train")
    arrays = everything(reader)
    assert len(reader) == len(arrays.video_ids_B) == 18
    assert arrays.video_BTD.shape == (18, 5, 8)
    assert arrays.tokens_BKL.shape == (18, 3, 6)
    assert (arrays.tokens_BKL.dtype, arrays.video_ids_B.dtype) == (np.int32, np.int64)
    for window in range(18):
        video = reader.manifest.video_ids[reader.windows.video_W[window]]
        first, rows = reader.windows.first_row_W[window], reader.windows.rows_W[window]
        stored = reader.stream.read(int(reader.stream.index_of([video])[0]))[first : first + rows]
        assert arrays.video_mask_BT[window].tolist() == [True] * rows + [False] * (5 - rows)
        assert (arrays.video_BTD[window, :rows] == stored).all()
        assert not arrays.video_BTD[window, rows:].any()
        bag = reader.windows.candidates_of(window)
        for k in range(3):
            ids = reader.manifest.caption_tokens(int(bag[k])).tolist() if k < len(bag) else []
            assert arrays.tokens_BKL[window, k].tolist() == ids + [0] * (6 - len(ids))
            assert arrays.token_mask_BKL[window, k].tolist() == [True] * len(ids) + [False] * (6 - len(ids))
        assert arrays.caption_mask_BK[window].sum() == len(bag)
    assert arrays.video_ids_B.tolist() == np.repeat(np.arange(6), 3).tolist()


def test_long_windows_give_evenly_spaced_rows(store):
    full = WindowReader(store, "default", "train")
    cut = WindowReader(store, "default", "train", config=DataConfig(max_rows=2))
    whole, few = everything(full), everything(cut)
    assert few.video_BTD.shape == (18, 2, 8)
    expected = {2: [0, 1], 3: [0, 2], 4: [1, 3], 5: [1, 3]}
    for window in range(18):
        rows = expected[int(full.windows.rows_W[window])]
        assert (few.video_BTD[window] == whole.video_BTD[window, rows]).all()


def test_long_windows_and_short_ones_in_one_batch(store):
    full = WindowReader(store, "default", "train")
    cut = WindowReader(store, "default", "train", config=DataConfig(max_rows=4))
    whole, some = everything(full), everything(cut)
    for window in range(18):
        rows = int(full.windows.rows_W[window])
        expected = [0, 1, 3, 4] if rows == 5 else list(range(rows))
        assert (some.video_BTD[window, : len(expected)] == whole.video_BTD[window, expected]).all()
        assert not some.video_BTD[window, len(expected) :].any()
        assert some.video_mask_BT[window].sum() == len(expected)


def test_a_selection_may_ask_for_fewer_rows_and_tokens(store):
    reader = WindowReader(store, "default", "train")
    window_B = np.flatnonzero(reader.windows.rows_W <= 3)
    whole = filled(reader, first_captions(window_B, reader.bag_W, 3))
    choice_BK = first_captions(window_B, reader.bag_W, 3).choice_BK
    part = filled(reader, Selection(window_B, choice_BK, rows=3, tokens=1))
    assert part.video_BTD.shape[1] == 3
    assert part.tokens_BKL.shape[2] == 1
    assert (part.video_BTD == whole.video_BTD[:, :3]).all()
    assert (part.video_mask_BT == whole.video_mask_BT[:, :3]).all()
    assert (part.tokens_BKL == whole.tokens_BKL[..., :1]).all()
    assert (part.token_mask_BKL == whole.token_mask_BKL[..., :1]).all()


def test_chosen_captions_are_the_ones_that_come(store):
    reader = WindowReader(store, "default", "train", config=DataConfig(max_tokens=1))
    window = int(np.argmax(reader.bag_W))
    arrays = filled(reader, Selection(np.array([window]), np.array([[2, -1, 0]])))
    bag = reader.windows.candidates_of(window)
    ids = [reader.manifest.caption_tokens(int(bag[place]))[0] for place in (2, 0)]
    assert arrays.caption_mask_BK.tolist() == [[True, False, True]]
    assert arrays.tokens_BKL.tolist() == [[[ids[0]], [0], [ids[1]]]]
    assert arrays.token_mask_BKL.tolist() == [[[True], [False], [True]]]


def test_windows_and_captions_that_there_are_not_are_no_others(store):
    reader = WindowReader(store, "default", "train")
    for window in (-1, 18):
        with pytest.raises(IndexError, match="the split has 18"):
            filled(reader, Selection(np.array([window]), np.array([[0]])))
    with pytest.raises(IndexError, match="bag does not have"):
        filled(reader, Selection(np.array([0]), np.array([[reader.bag_W[0]]])))


def test_pickles_small_and_opens_again(store):
    reader = WindowReader(store, "default", "val")
    data = pickle.dumps(reader)
    assert len(data) < 4096
    assert (everything(pickle.loads(data)).video_BTD == everything(reader).video_BTD).all()


@pytest.mark.parametrize(("verify", "mapping"), [("never", "pread"), ("always", "mmap"), ("always", "pread")])
def test_rows_are_the_same_however_they_are_read(store, verify, mapping):
    expected = everything(WindowReader(store, "default", "train"))
    config = DataConfig(verify=verify, mapping=mapping)
    for name, array in everything(WindowReader(store, "default", "train", config=config)).present.items():
        assert (array == getattr(expected, name)).all()


def test_rows_can_be_copied_to_a_local_disk_first(store, tmp_path):
    expected = everything(WindowReader(store, "default", "train"))
    staged = WindowReader(store, "default", "train", config=DataConfig(stage=tmp_path / "local"))
    assert list((tmp_path / "local").glob("*/*.npy"))
    for reader in (staged, pickle.loads(pickle.dumps(staged))):
        for name, array in everything(reader).present.items():
            assert (array == getattr(expected, name)).all()
    with pytest.raises(RequestError, match="is inside the store"):
        WindowReader(store, "default", "train", config=DataConfig(stage=store.path / "copies"))


def test_what_the_store_does_not_hold_is_refused_by_name(store):
    with pytest.raises(StoreError, match="no windows of split 'test'; it has train, val"):
        WindowReader(store, "default", "test")
    with pytest.raises(StoreError, match="no manifest set 'other'"):
        WindowReader(store, "other", "train")
    with pytest.raises(RequestError, match="cut for stream 'default', not for 's3d'"):
        WindowReader(store, "default", "train", stream="s3d")


def test_windows_that_leave_their_video_are_damage(store, monkeypatch):
    opened = store.manifest_set("default")
    table = opened.windows("train")
    table.rows_W[7] = 99
    monkeypatch.setattr(type(opened), "windows", lambda self, split: table)
    with pytest.raises(DamageFound, match="the first is window 7 of video 'train002'"):
        WindowReader(store, "default", "train")
