"""Embeddings of a whole split over all ranks, and how well they find each other."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch.nn import functional as F

from shared.config import Config
from shared.errors import RequestError
from train.data import WindowData, first_captions
from train.distributed import World, gather_plain
from train.metrics import (
    RECALL_AT,
    RetrievalMetrics,
    chance_recall,
    refuse_non_finite,
    retrieval,
)
from train.model import TwoTower


class EvaluateConfig(Config):
    """level: `window` ranks windows, `video` ranks videos, each the mean of its windows' embeddings.

    recall_at: the k of R@k. confidence: of the interval in which chance falls. batch_size: windows embedded at a time,
    on every rank; it does not change what is measured.
    """

    level: Literal["window", "video"] = "window"
    recall_at: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=RECALL_AT, min_length=1)
    confidence: float = Field(default=0.99, gt=0, lt=1)
    batch_size: int = Field(default=256, ge=1)


@dataclass(frozen=True)
class EmbeddedSplit:
    """One row a window, in the split's own order, on the world's device, the same on every rank.

    video_ND: float32. text_ND: float32, of the window's own caption (the first of its bag), anything where has_text_N
    is False.
    """

    video_ND: torch.Tensor
    text_ND: torch.Tensor
    has_text_N: torch.Tensor


@torch.no_grad()
def embed_split(model: TwoTower, data: WindowData, world: World, batch_size: int) -> EmbeddedSplit:
    """Every window exactly once, whatever the world size.

    Windows are cut into the same blocks at every world size, and blocks go round the ranks, so a window always meets
    the same neighbours and no window is repeated to fill up.
    """
    batch_size = min(batch_size, len(data))
    was_training = model.training
    model.eval()
    blocks = range(0, len(data), batch_size)
    rounds = -(-len(blocks) // world.size)
    number_R = torch.full((rounds * batch_size,), -1, dtype=torch.int64, device=world.device)
    rows: list[torch.Tensor] = []
    for place, start in enumerate(blocks[world.rank :: world.size]):
        window_B = np.arange(start, min(start + batch_size, len(data)))
        embedded_BD = _embed_block(model, data, window_B, world.device)
        number_R[place * batch_size :][: len(window_B)] = torch.from_numpy(window_B).to(world.device)
        rows.append(F.pad(embedded_BD, (0, 0, 0, batch_size - len(window_B))))
    width = 2 * model.dim + 1
    missing = torch.zeros((rounds - len(rows)) * batch_size, width, device=world.device)
    table_RD, number_R = gather_plain(torch.cat([*rows, missing]), world), gather_plain(number_R, world)
    model.train(was_training)
    ordered_ND = torch.empty(len(data), width, device=world.device)
    ordered_ND[number_R[number_R >= 0]] = table_RD[number_R >= 0]
    return EmbeddedSplit(ordered_ND[:, : model.dim], ordered_ND[:, model.dim : -1], ordered_ND[:, -1] > 0)


def measure(embedded: EmbeddedSplit, data: WindowData, config: EvaluateConfig, *, normalise: bool) -> dict[str, Any]:
    """Metrics of a split as plain numbers; recalls and chance are shares in [0, 1], ranks count from 1.

    Raises RequestError where no window has a caption, RunFailed naming the first embedding that is not finite.
    """
    if not bool(embedded.has_text_N.any()):
        raise RequestError(
            f"no window of split {data.split!r} has a caption, so there is no query; choose another split with captions"
        )
    window_M = embedded.has_text_N.nonzero()[:, 0]
    text_MD = embedded.text_ND[window_M]
    names = window_names(data)
    refuse_non_finite(embedded.video_ND, "window", names)
    refuse_non_finite(text_MD, "caption of window", [names[window] for window in window_M.tolist()])
    if config.level == "video":
        return _video_level(embedded, text_MD, window_M, data, config, normalise)
    item_N = torch.arange(len(embedded.video_ND), device=window_M.device)
    to_video = retrieval(text_MD, embedded.video_ND, window_M, item_N, recall_at=config.recall_at)
    to_text = retrieval(embedded.video_ND[window_M], text_MD, window_M, window_M, recall_at=config.recall_at)
    return {
        "level": "window",
        "text_to_video": _plain(to_video, config),
        "video_to_text": _plain(to_text, config),
    }


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
    known = found and (found[3] is None or int(found[3]) in config.recall_at)
    if not known or (config.level == "video" and name.startswith("video_to_text")):
        directions = "text_to_video" if config.level == "video" else "text_to_video or video_to_text"
        recalls = ", ".join(f"R@{k}" for k in config.recall_at)
        raise ValueError(f"metric {name!r} is not measured; expected {directions}, a dot, and {recalls}, MedR or MeanR")


def metric_value(metrics: dict[str, Any], name: str) -> float:
    """The number called `text_to_video.R@10`, ... in what `measure` gave."""
    direction, key = name.split(".", 1)
    return float(metrics[direction][key])


def is_better(name: str, value: float, best: float | None) -> bool:
    """Recalls are better when higher, ranks when lower; of equals the later, which has learned longer."""
    if best is None:
        return True
    return value >= best if ".R@" in name else value <= best


def _embed_block(model: TwoTower, data: WindowData, window_B: np.ndarray, device: torch.device) -> torch.Tensor:
    """float32 (B, 2 D + 1): video, text, and 1 where the text is one."""
    batch = data.batch(first_captions(window_B, data.bag_W, 1)).to(device)
    tokens_BL = batch.tokens_BKL[:, 0]
    has_text_B1 = batch.caption_mask_BK & (tokens_BL != model.pad_id).any(dim=1, keepdim=True)
    video_BD = model.embed_video(batch.video_BTD, batch.video_mask_BT)
    return torch.cat([video_BD.float(), model.embed_text(tokens_BL).float(), has_text_B1.float()], dim=1)


def _video_level(
    embedded: EmbeddedSplit,
    text_MD: torch.Tensor,
    window_M: torch.Tensor,
    data: WindowData,
    config: EvaluateConfig,
    normalise: bool,
) -> dict[str, Any]:
    """Each caption looks for its video. The other direction would need several right texts a video, unequally many."""
    videos, inverse_N = np.unique(data.windows.video_W, return_inverse=True)
    group_N = torch.from_numpy(inverse_N).to(window_M.device)
    total_VD = torch.zeros(len(videos), embedded.video_ND.shape[1], dtype=torch.float64, device=window_M.device)
    total_VD.index_add_(0, group_N, embedded.video_ND.double())
    mean_VD = total_VD / torch.bincount(group_N)[:, None]
    item_VD = F.normalize(mean_VD, dim=1) if normalise else mean_VD
    item_V = torch.arange(len(videos), device=window_M.device)
    found = retrieval(text_MD, item_VD, group_N[window_M], item_V, recall_at=config.recall_at)
    return {"level": "video", "text_to_video": _plain(found, config)}


def _plain(metrics: RetrievalMetrics, config: EvaluateConfig) -> dict[str, Any]:
    chance = {
        f"R@{k}": vars(chance_recall(k, metrics.items, metrics.queries, confidence=config.confidence))
        for k in config.recall_at
    }
    return {
        **{f"R@{k}": metrics.recall[k] for k in config.recall_at},
        "MedR": metrics.median_rank,
        "MeanR": metrics.mean_rank,
        "queries": metrics.queries,
        "items": metrics.items,
        "chance": chance | {"MedR": (metrics.items + 1) / 2, "confidence": config.confidence},
    }
