from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from shared.errors import RequestError, RunFailed
from shared.store import open_store
from train.data import WindowData, first_captions
from train.distributed import World
from train.model import ModelConfig, WordsConfig, build_model
from train.retrieval import (
    EmbeddedSplit,
    EvaluateConfig,
    check_metric,
    embed_split,
    is_better,
    measure,
    metric_value,
)

ALONE = World(0, 1, 0, torch.device("cpu"))


@pytest.fixture(scope="module")
def data(tmp_path_factory, small_store):
    path = small_store(tmp_path_factory.mktemp("retrieval") / "store", splits={"val": 7})
    return WindowData(open_store(path), "default", "val")


@pytest.fixture(scope="module")
def model(data):
    torch.manual_seed(0)
    config = ModelConfig(dim=6, text=WordsConfig(word_dim=5, hidden=7))
    return build_model(config, input_dim=data.input_dim, tokens=data.tokens)


@pytest.mark.parametrize("batch_size", [1, 4, 21, 100])
def test_every_window_once_in_its_place(data, model, batch_size):
    embedded = embed_split(model, data, ALONE, batch_size)
    assert embedded.video_ND.shape == embedded.text_ND.shape == (21, 6)
    assert embedded.has_text_N.all()
    for window in range(21):
        batch = data.batch(first_captions(np.array([window]), data.bag_W, 1))
        with torch.no_grad():
            video_BD = model.embed_video(batch.video_BTD, batch.video_mask_BT)
            text_BD = model.embed_text(batch.tokens_BKL[:, 0])
        torch.testing.assert_close(embedded.video_ND[window], video_BD[0])
        torch.testing.assert_close(embedded.text_ND[window], text_BD[0])


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_parts_of_the_ranks_are_the_whole_bit_for_bit(data, model, size, monkeypatch):
    """Ranks one after the other, each keeping what it would have sent; then the gather of all."""
    whole = embed_split(model, data, ALONE, 4)
    sent: dict[int, list[torch.Tensor]] = {}
    for rank in range(size):
        sent[rank] = []
        monkeypatch.setattr("train.retrieval.gather_plain", lambda x, world: sent[world.rank].append(x) or x)
        embed_split(model, data, World(rank, size, 0, torch.device("cpu")), 4)
    gathered = iter([torch.cat([sent[rank][call] for rank in range(size)]) for call in range(2)])
    monkeypatch.setattr("train.retrieval.gather_plain", lambda x, world: next(gathered))
    again = embed_split(model, data, World(0, size, 0, torch.device("cpu")), 4)
    assert torch.equal(again.video_ND, whole.video_ND)
    assert torch.equal(again.text_ND, whole.text_ND)


def perfect(data):
    video_ND = torch.nn.functional.normalize(
        torch.randn(len(data), 32, generator=torch.Generator().manual_seed(1)), dim=1
    )
    return EmbeddedSplit(video_ND, video_ND.clone(), torch.ones(len(data), dtype=torch.bool))


def test_a_perfect_model_and_a_collapsed_one(data):
    config = EvaluateConfig()
    best = measure(perfect(data), data, config, normalise=True)
    assert metric_value(best, "text_to_video.R@1") == metric_value(best, "video_to_text.R@1") == 1.0
    assert best["text_to_video"]["MedR"] == 1.0
    same = torch.ones(len(data), 4)
    worst = measure(EmbeddedSplit(same, same, torch.ones(21, dtype=torch.bool)), data, config, normalise=True)
    for name, chance in (("R@1", 1 / 21), ("R@5", 5 / 21), ("R@10", 10 / 21)):
        assert math.isclose(worst["text_to_video"][name], chance)
        assert math.isclose(worst["text_to_video"]["chance"][name]["level"], chance)
    assert worst["text_to_video"]["MedR"] == worst["text_to_video"]["chance"]["MedR"] == 11


def test_video_level_ranks_videos(data):
    result = measure(perfect(data), data, EvaluateConfig(level="video"), normalise=True)
    assert result["text_to_video"]["items"] == 7
    assert result["text_to_video"]["queries"] == 21
    assert result["text_to_video"]["R@1"] > 0.8
    assert "video_to_text" not in result


def test_windows_without_a_caption_are_candidates_but_ask_nothing(data):
    embedded = perfect(data)
    has_text_N = torch.ones(21, dtype=torch.bool)
    has_text_N[[0, 5]] = False
    result = measure(
        EmbeddedSplit(embedded.video_ND, embedded.text_ND, has_text_N), data, EvaluateConfig(), normalise=True
    )
    assert (result["text_to_video"]["queries"], result["text_to_video"]["items"]) == (19, 21)
    assert (result["video_to_text"]["queries"], result["video_to_text"]["items"]) == (19, 19)
    assert result["text_to_video"]["R@1"] == result["video_to_text"]["R@1"] == 1.0
    with pytest.raises(RequestError, match="has a caption, so there is no query"):
        measure(
            EmbeddedSplit(*[embedded.video_ND] * 2, ~torch.ones(21, dtype=torch.bool)),
            data,
            EvaluateConfig(),
            normalise=True,
        )


@pytest.mark.parametrize("level", ["window", "video"])
def test_a_broken_embedding_is_named(data, level):
    embedded = perfect(data)
    embedded.video_ND[4, 2] = math.nan
    with pytest.raises(RunFailed, match=r"window val001 @ 5\.0-9\.0 s"):
        measure(embedded, data, EvaluateConfig(level=level), normalise=True)


def test_which_metric_is_better():
    assert is_better("text_to_video.R@1", 0.2, None)
    assert is_better("text_to_video.R@1", 0.2, 0.1)
    assert is_better("text_to_video.R@1", 0.1, 0.1)
    assert is_better("text_to_video.MedR", 3, 4)
    assert not is_better("text_to_video.MeanR", 5, 4)
    with pytest.raises(ValueError, match="is not measured"):
        check_metric("loss", EvaluateConfig())
    check_metric("video_to_text.MeanR", EvaluateConfig())
