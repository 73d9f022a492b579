from __future__ import annotations

import numpy as np
import pytest
import torch

from shared.store import open_store
from train.data import WindowData
from train.delivery.windows import first_captions
from train.distributed import World
from train.embedded import embed_split
from train.model import ModelConfig, WordsConfig, build_model

ALONE = World(0, 1, 0, torch.device("cpu"))


@pytest.fixture(scope="module")
def data(tmp_path_factory, small_store):
    path = small_store(tmp_path_factory.mktemp("embedded") / "store", splits={"val": 7})
    return WindowData(open_store(path), "default", "val")


@pytest.fixture(scope="module")
def model(data):
    torch.manual_seed(0)
    config = ModelConfig(dim=6, text=WordsConfig(word_dim=5, hidden=7))
    return build_model(config, input_dim=data.input_dim, tokens=data.tokens)


def alone(model, data, window, choice):
    """Embeddings of one window and of one caption of its bag, by themselves."""
    batch = data.batch(first_captions(np.array([window]), data.bag_W, choice + 1))
    with torch.no_grad():
        video_BD = model.embed_video(batch.video_BTD, batch.video_mask_BT)
        return video_BD[0], model.embed_text(batch.tokens_BKL[:, choice], batch.token_mask_BKL[:, choice])[0]


@pytest.mark.parametrize("batch_size", [1, 4, 21, 100])
def test_every_window_once_in_its_place(data, model, batch_size):
    embedded = embed_split(model, data, ALONE, batch_size)
    assert embedded.video_ND.shape == embedded.text_MD.shape == (21, 6)
    assert embedded.first_text().tolist() == list(range(21))
    for window in range(21):
        video_D, text_D = alone(model, data, window, 0)
        torch.testing.assert_close(embedded.video_ND[window], video_D)
        torch.testing.assert_close(embedded.text_MD[window], text_D)


def test_all_captions_each_with_its_windows(data, model):
    embedded = embed_split(model, data, ALONE, 8, "all")
    assert len(embedded.text_MD) == data.bag_W.sum() == len(embedded.text_P)
    pairs = list(zip(embedded.text_P.tolist(), embedded.window_P.tolist(), strict=True))
    place = 0
    for window in range(21):
        for choice in range(data.bag_W[window]):
            text, owner = pairs[place]
            assert owner == window
            torch.testing.assert_close(embedded.text_MD[text], alone(model, data, window, choice)[1])
            place += 1


def test_the_mean_of_a_bag_is_one_query(data, model):
    embedded = embed_split(model, data, ALONE, 8, "mean")
    assert embedded.text_MD.shape == (21, 6)
    for window in range(21):
        texts = torch.stack([alone(model, data, window, choice)[1] for choice in range(data.bag_W[window])])
        expected = torch.nn.functional.normalize(texts.mean(dim=0), dim=0)
        torch.testing.assert_close(embedded.text_MD[window], expected)


def test_windows_and_captions_without_a_word_ask_nothing(tmp_path, small_store, monkeypatch):
    data = WindowData(open_store(small_store(tmp_path / "store", splits={"val": 2})), "default", "val")
    model = build_model(ModelConfig(dim=4), input_dim=data.input_dim, tokens=data.tokens)
    offsets = np.array(data.manifest.token_offsets)
    bag = data.windows.candidates_of(2)
    offsets[bag[0] + 1 :] -= offsets[bag[0] + 1] - offsets[bag[0]]
    monkeypatch.setitem(data.manifest.__dict__, "token_offsets", offsets)
    asked = embed_split(model, data, ALONE, 8)
    assert asked.window_P.tolist() == [0, 1, 3, 4, 5]
    assert asked.first_text().tolist() == [0, 1, -1, 2, 3, 4]


@pytest.mark.parametrize("captions", ["first", "all"])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_parts_of_the_ranks_are_the_whole_bit_for_bit(data, model, size, captions, monkeypatch):
    """Ranks one after the other, each keeping what it would have sent; then the gather of all."""
    whole = embed_split(model, data, ALONE, 4, captions)
    sent: dict[int, list[torch.Tensor]] = {}
    for rank in range(size):
        sent[rank] = []
        monkeypatch.setattr("train.embedded.gather_plain", lambda x, world: sent[world.rank].append(x) or x)
        embed_split(model, data, World(rank, size, 0, torch.device("cpu")), 4, captions)
    gathered = iter([torch.cat([sent[rank][call] for rank in range(size)]) for call in range(4)])
    monkeypatch.setattr("train.embedded.gather_plain", lambda x, world: next(gathered))
    again = embed_split(model, data, World(0, size, 0, torch.device("cpu")), 4, captions)
    assert torch.equal(again.video_ND, whole.video_ND)
    assert torch.equal(again.text_MD, whole.text_MD)
