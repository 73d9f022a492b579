"""How well the embeddings of a split find each other."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch.nn import functional as F

from shared.config import Config
from shared.errors import RequestError
from train.bootstrap import intervals
from train.chance import chance_of
from train.data import WindowData
from train.embedded import Captions, EmbeddedSplit
from train.metrics import RECALL_AT, Pairs, Ranks, median, rank_queries, refuse_non_finite, summarise


class EvaluateConfig(Config):
    """level: `window` ranks windows, `video` ranks videos, each the mean of its windows' embeddings.

    captions: `first` asks with each window's nearest caption, `all` with every caption once (several right ones a
    window), `mean` with the mean over a window's captions, as for several prompts of one class.
    recall_at: the k of R@k. confidence: of the interval in which chance falls, and of the bootstrap's. bootstrap:
    resamples of the videos for the intervals of the metrics, 0 for none. dual_softmax: temperature of a softmax over
    all queries, whose results are reported apart; null leaves it out. batch_size: windows embedded at a time, on every
    rank; it does not change what is measured.
    """

    level: Literal["window", "video"] = "window"
    captions: Captions = "first"
    recall_at: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=RECALL_AT, min_length=1)
    confidence: float = Field(default=0.99, gt=0, lt=1)
    bootstrap: int = Field(default=1000, ge=0, le=100_000)
    dual_softmax: float | None = Field(default=None, gt=0)
    batch_size: int = Field(default=256, ge=1)


class _Way(NamedTuple):
    """One direction. video_Q: the video of each query."""

    query_QD: torch.Tensor
    item_ND: torch.Tensor
    pairs: Pairs
    video_Q: torch.Tensor


def measure(embedded: EmbeddedSplit, data: WindowData, config: EvaluateConfig, *, normalise: bool) -> dict[str, Any]:
    """Metrics of a split as plain numbers; recalls and chance are shares in [0, 1], ranks count from 1.

    `text_to_video`: each text looks for its window (or video); `video_to_text`: each window (or video) that has a
    caption for the best of its texts. `dual_softmax`: both again, see EvaluateConfig.
    Raises RequestError where no window has a caption, RunFailed naming the first embedding that is not finite.
    """
    if len(embedded.text_MD) == 0:
        raise RequestError(
            f"no window of split {data.split!r} has a caption, so there is no query; choose another split with captions"
        )
    refuse_non_finite(embedded.video_ND, "window", lambda window: window_names(data)[window])
    refuse_non_finite(
        embedded.text_MD,
        "caption of window",
        lambda text: window_names(data)[int(embedded.window_P[embedded.text_P == text][0])],
    )
    ways = _ways(embedded, data, config, normalise)
    result: dict[str, Any] = {"level": config.level, "captions": config.captions}
    result |= {name: _measured(way, config, None) for name, way in ways.items()}
    if config.dual_softmax is not None:
        again = {name: _measured(way, config, config.dual_softmax) for name, way in ways.items()}
        result["dual_softmax"] = {"temperature": config.dual_softmax, **again}
    return result


def _ways(embedded: EmbeddedSplit, data: WindowData, config: EvaluateConfig, normalise: bool) -> dict[str, _Way]:
    device = embedded.video_ND.device
    video_N = torch.from_numpy(data.windows.video_W.astype(np.int64)).to(device)
    item_ND, pairs = embedded.video_ND, embedded.pairs()
    if config.level == "video":
        video_N, group_N = torch.unique(video_N, return_inverse=True)
        item_ND = _means(item_ND, group_N, normalise)
        pairs = Pairs.of(pairs.query_P, group_N[pairs.item_P])
    first_P = torch.searchsorted(pairs.query_P, torch.arange(len(embedded.text_MD), device=device))
    to_video = _Way(embedded.text_MD, item_ND, pairs, video_N[pairs.item_P[first_P]])
    asking, asked_P = torch.unique(pairs.item_P, return_inverse=True)
    to_text = _Way(item_ND[asking], embedded.text_MD, Pairs.of(asked_P, pairs.query_P), video_N[asking])
    return {"text_to_video": to_video, "video_to_text": to_text}


def _means(x_ND: torch.Tensor, group_N: torch.Tensor, normalise: bool) -> torch.Tensor:
    count_G = torch.bincount(group_N)
    total_GD = torch.zeros(len(count_G), x_ND.shape[1], dtype=torch.float64, device=x_ND.device)
    mean_GD = total_GD.index_add_(0, group_N, x_ND.double()) / count_G[:, None]
    return F.normalize(mean_GD, dim=1) if normalise else mean_GD


def window_names(data: WindowData) -> list[str]:
    """`video id @ start-end s` of every window."""
    table = data.windows
    videos = data.video_names(table.video_W.tolist())
    return [
        f"{video} @ {start:.1f}-{end:.1f} s"
        for video, start, end in zip(videos, table.start_W.tolist(), table.end_W.tolist(), strict=True)
    ]


_METRIC = re.compile(r"^(text_to_video|video_to_text)\.(R@(\d+)|MedR|MeanR)$")


def check_metric(name: str, config: EvaluateConfig) -> None:
    """Raise ValueError unless `measure` under this config gives a number of that name."""
    found = _METRIC.match(name)
    if not found or not (found[3] is None or int(found[3]) in config.recall_at):
        recalls = ", ".join(f"R@{k}" for k in config.recall_at)
        raise ValueError(
            f"metric {name!r} is not measured; expected text_to_video or video_to_text, a dot, and {recalls}, MedR or "
            "MeanR"
        )


def metric_value(metrics: dict[str, Any], name: str) -> float:
    """The number called `text_to_video.R@10`, ... in what `measure` gave."""
    direction, key = name.split(".", 1)
    return float(metrics[direction][key])


def is_better(name: str, value: float, best: float | None) -> bool:
    """Recalls are better when higher, ranks when lower; of equals the later, which has learned longer."""
    if best is None:
        return True
    return value >= best if higher_is_better(name) else value <= best


def higher_is_better(name: str) -> bool:
    """Of recalls more is better, of ranks less."""
    return ".R@" in name


def _measured(way: _Way, config: EvaluateConfig, dual_softmax: float | None) -> dict[str, Any]:
    ranks = rank_queries(way.query_QD, way.item_ND, way.pairs, dual_softmax=dual_softmax)
    metrics = summarise(ranks, config.recall_at)
    return {
        **{f"R@{k}": metrics.recall[k] for k in config.recall_at},
        "MedR": metrics.median_rank,
        "MeanR": metrics.mean_rank,
        "queries": metrics.queries,
        "items": metrics.items,
        "chance": _chance(ranks, config),
        "interval": _intervals(ranks, way.video_Q, config),
    }


def _chance(ranks: Ranks, config: EvaluateConfig) -> dict[str, Any]:
    recalls = {
        f"R@{k}": vars(chance_of(ranks.right_Q, k, ranks.items, confidence=config.confidence)) for k in config.recall_at
    }
    # The best of p right ones among n stands at (n + 1) / (p + 1) on average, as for a model that finds all alike.
    rank_Q = (ranks.items + 1) / (ranks.right_Q + 1)
    return recalls | {"MedR": median(rank_Q), "MeanR": float(rank_Q.mean()), "confidence": config.confidence}


def _intervals(ranks: Ranks, video_Q: torch.Tensor, config: EvaluateConfig) -> dict[str, Any]:
    if config.bootstrap == 0:
        return {}
    found = intervals(ranks, video_Q, config.recall_at, resamples=config.bootstrap, confidence=config.confidence)
    kept = {name: list(found[name]) for name in (*(f"R@{k}" for k in config.recall_at), "MedR", "MeanR")}
    return kept | {"confidence": config.confidence, "resamples": config.bootstrap}
