"""Which queries a report shows, and what the model answered them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from train.data import WindowData
from train.embedded import EmbeddedSplit
from train.retrieval import window_names
from train.thumbnails import Thumbnails

_CHUNK = 1024


@dataclass(frozen=True)
class Answer:
    """One window that was found: its place (1 is best), similarity, whether it is the right one, a picture or None."""

    place: int
    score: float
    right: bool
    name: str
    caption: str
    picture: str | None


@dataclass(frozen=True)
class Query:
    """A caption, the window it belongs to, the expected rank of that window, and the best answers.

    The right window comes last where it is not among the best.
    """

    text: str
    name: str
    rank: float
    answers: list[Answer]


@torch.no_grad()
def expected_ranks(embedded: EmbeddedSplit) -> torch.Tensor:
    """float64 (N,): the rank of each window for its own caption among all windows, ties by expectation; NaN without
    a caption. Works on a few queries at a time."""
    item_DN = embedded.video_ND.double().T
    rank_N = torch.full((len(embedded.video_ND),), float("nan"), dtype=torch.float64)
    text_N = embedded.first_text()
    window_M = (text_N >= 0).nonzero()[:, 0]
    for start in range(0, len(window_M), _CHUNK):
        window_C = window_M[start : start + _CHUNK]
        score_CN = (embedded.text_MD[text_N[window_C]].double() @ item_DN).float()
        own_C1 = score_CN.gather(1, window_C[:, None])
        tied_C = (score_CN == own_C1).sum(dim=1) - 1
        rank_N[window_C.cpu()] = (1 + (score_CN > own_C1).sum(dim=1) + tied_C / 2).double().cpu()
    return rank_N


def choose(rank_N: torch.Tensor, evenly: int, worst: int) -> tuple[list[int], list[int]]:
    """(windows spread evenly over the split, windows with the worst ranks, worst first)."""
    asking = (~rank_N.isnan()).nonzero()[:, 0]
    spread = asking[torch.linspace(0, len(asking) - 1, min(evenly, len(asking))).round().long()]
    order = rank_N[asking].argsort(descending=True, stable=True)
    missed = asking[order[:worst]]
    return spread.tolist(), [window for window in missed.tolist() if rank_N[window] > 1]


@torch.no_grad()
def ask(
    window: int,
    rank: float,
    embedded: EmbeddedSplit,
    data: WindowData,
    names: list[str],
    thumbnails: Thumbnails | None,
    count: int = 5,
) -> Query:
    """The best `count` windows for the caption of `window`, and the right one if it is not among them."""
    text_D = embedded.text_MD[embedded.first_text()[window]].double()
    score_N = (embedded.video_ND.double() @ text_D).float()
    best = score_N.argsort(descending=True, stable=True)[:count].tolist()
    places = list(enumerate(best, start=1))
    if window not in best:
        places.append((round(rank), window))
    answers = [
        Answer(
            place=place,
            score=float(score_N[found]),
            right=found == window,
            name=names[found],
            caption=data.caption_text(found) or "(no caption)",
            picture=thumbnails.picture(found) if thumbnails else None,
        )
        for place, found in places
    ]
    return Query(data.caption_text(window) or "", names[window], rank, answers)


def galleries(
    embedded: EmbeddedSplit, data: WindowData, thumbnails: Thumbnails | None, *, evenly: int = 12, worst: int = 6
) -> tuple[list[Query], list[Query]]:
    """(a sample of all queries, the worst mistakes)."""
    rank_N = expected_ranks(embedded)
    names = window_names(data)
    sample, missed = choose(rank_N, evenly, worst)
    shown = [[ask(w, float(rank_N[w]), embedded, data, names, thumbnails) for w in part] for part in (sample, missed)]
    return shown[0], shown[1]
