from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from shared.errors import RequestError, RunFailed
from shared.store import open_store
from train.bootstrap import resample_counts
from train.data import WindowData
from train.embedded import EmbeddedSplit
from train.metrics import retrieval
from train.retrieval import EvaluateConfig, check_metric, is_better, measure, metric_value


@pytest.fixture(scope="module")
def data(tmp_path_factory, small_store):
    path = small_store(tmp_path_factory.mktemp("retrieval") / "store", splits={"val": 7})
    return WindowData(open_store(path), "default", "val")


def split(video_ND, text_ND=None):
    """Every window asks with a text of its own."""
    number_N = torch.arange(len(video_ND))
    return EmbeddedSplit(video_ND, video_ND.clone() if text_ND is None else text_ND, number_N, number_N)


def perfect(data):
    return split(
        torch.nn.functional.normalize(torch.randn(len(data), 32, generator=torch.Generator().manual_seed(1)), dim=1)
    )


def test_a_perfect_model_and_a_collapsed_one(data):
    config = EvaluateConfig()
    best = measure(perfect(data), data, config, normalise=True)
    assert metric_value(best, "text_to_video.R@1") == metric_value(best, "video_to_text.R@1") == 1.0
    assert best["text_to_video"]["MedR"] == 1.0
    assert best["text_to_video"]["interval"]["R@1"] == [1.0, 1.0]
    worst = measure(split(torch.ones(len(data), 4)), data, config, normalise=True)
    for way in ("text_to_video", "video_to_text"):
        for name, chance in (("R@1", 1 / 21), ("R@5", 5 / 21), ("R@10", 10 / 21), ("R@50", 1.0)):
            assert math.isclose(worst[way][name], chance)
            assert math.isclose(worst[way]["chance"][name]["level"], chance)
        for name in ("MedR", "MeanR"):
            assert worst[way][name] == worst[way]["chance"][name] == 11


def test_video_level_ranks_the_means_of_videos_both_ways(data):
    embedded = perfect(data)
    result = measure(embedded, data, EvaluateConfig(level="video"), normalise=True)
    assert (result["text_to_video"]["items"], result["text_to_video"]["queries"]) == (7, 21)
    assert (result["video_to_text"]["items"], result["video_to_text"]["queries"]) == (21, 7)
    video_VD = torch.nn.functional.normalize(embedded.video_ND.view(7, 3, -1).mean(dim=1), dim=1)
    video_N = torch.arange(7).repeat_interleave(3)
    expected = retrieval(embedded.text_MD, video_VD, video_N, torch.arange(7))
    assert result["text_to_video"]["R@1"] == expected.recall[1] > 0.8
    assert result["video_to_text"]["R@1"] == retrieval(video_VD, embedded.text_MD, torch.arange(7), video_N).recall[1]
    collapsed = measure(split(torch.ones(21, 4)), data, EvaluateConfig(level="video"), normalise=True)
    for name in ("R@1", "R@5"):
        back = collapsed["video_to_text"]
        assert math.isclose(back[name], back["chance"][name]["level"])


def test_windows_without_a_caption_are_candidates_but_ask_nothing(data):
    video_ND = perfect(data).video_ND
    asking = torch.tensor([n for n in range(21) if n not in (0, 5)])
    result = measure(
        EmbeddedSplit(video_ND, video_ND[asking], torch.arange(19), asking), data, EvaluateConfig(), normalise=True
    )
    assert (result["text_to_video"]["queries"], result["text_to_video"]["items"]) == (19, 21)
    assert (result["video_to_text"]["queries"], result["video_to_text"]["items"]) == (19, 19)
    assert result["text_to_video"]["R@1"] == result["video_to_text"]["R@1"] == 1.0
    nobody = EmbeddedSplit(video_ND, video_ND[:0], torch.arange(0), torch.arange(0))
    with pytest.raises(RequestError, match="has a caption, so there is no query"):
        measure(nobody, data, EvaluateConfig(), normalise=True)


def test_a_caption_of_several_windows_is_right_for_each(data):
    """One text that belongs to windows 4 and 9: found when either is first, found by both."""
    video_ND = torch.eye(21)
    embedded = EmbeddedSplit(video_ND, video_ND[9:10], torch.tensor([0, 0]), torch.tensor([4, 9]))
    result = measure(embedded, data, EvaluateConfig(recall_at=(1,)), normalise=True)
    assert (result["text_to_video"]["R@1"], result["text_to_video"]["queries"]) == (1.0, 1)
    assert (result["video_to_text"]["R@1"], result["video_to_text"]["queries"]) == (1.0, 2)
    assert math.isclose(result["text_to_video"]["chance"]["R@1"]["level"], 2 / 21)


@pytest.mark.parametrize("level", ["window", "video"])
def test_intervals_take_the_queries_of_a_video_together(data, level):
    """All windows of every other video are found, none of the others': seven pieces of evidence, not 21."""
    right_V = torch.tensor([True, False, True, False, True, False, True])
    video_ND = torch.eye(21)
    text_ND = torch.where(right_V.repeat_interleave(3)[:, None], video_ND, video_ND.roll(3, dims=0))
    config = EvaluateConfig(level=level, recall_at=(1,), bootstrap=300)
    found = measure(split(video_ND, text_ND), data, config, normalise=True)["text_to_video"]
    assert found["R@1"] == 4 / 7
    share_R = resample_counts(range(300), 7, 0) @ right_V.numpy() / 7
    assert found["interval"]["R@1"] == pytest.approx(np.quantile(share_R, [0.005, 0.995]).tolist())


def test_dual_softmax_is_reported_apart_and_only_when_asked_for(data):
    embedded = perfect(data)
    embedded.text_MD.add_(torch.randn(21, 32, generator=torch.Generator().manual_seed(2)) * 0.3)
    plain = measure(embedded, data, EvaluateConfig(), normalise=True)
    both = measure(embedded, data, EvaluateConfig(dual_softmax=0.05), normalise=True)
    assert "dual_softmax" not in plain
    apart = both.pop("dual_softmax")
    assert both == plain
    assert apart["temperature"] == 0.05
    assert apart["text_to_video"]["R@1"] > plain["text_to_video"]["R@1"]


@pytest.mark.parametrize("level", ["window", "video"])
def test_a_broken_embedding_is_named(data, level):
    embedded = perfect(data)
    embedded.video_ND[4, 2] = math.nan
    with pytest.raises(RunFailed, match=r"window val001 @ 5\.0-9\.0 s"):
        measure(embedded, data, EvaluateConfig(level=level), normalise=True)
    embedded = perfect(data)
    embedded.text_MD[3, 0] = math.inf
    with pytest.raises(RunFailed, match=r"caption of window val001 @ 0\.0-"):
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
