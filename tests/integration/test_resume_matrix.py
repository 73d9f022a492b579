"""Stopped after any step and gone on with, at any world size and with any number of workers: the same remains."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from shared.config import load_config
from shared.store import open_store
from train.config import FitConfig
from train.data import WindowData
from train.delivery.loader import Loader
from train.order import BatchOrder, Selection
from train.sources import Sources, build_order, open_sources

WORLDS, WORKERS = (1, 2, 3, 4), (0, 1, 3)
ORDERS = {
    "plain": "order: {candidates: 2, captions: random}",
    "every window": "order: {unit: window, candidates: 3, remainder: fill}",
    "by length": "order: {unit: window, candidates: 2, buckets: {budget: 72, multiple: 12, bounds: [3, 5]}}",
    "two stores": (
        "mixture: {choice: sampled, sources: {other: {store: OTHER, batch_size: 24, "
        "order: {candidates: 1, unit: window}}}}\norder: {candidates: 3}"
    ),
}
# What is known of a sample: video, start and end of its window in seconds, its rows, its captions, their ids.
Sample = tuple[str, float, float, bytes, tuple[str, ...], tuple[tuple[int, ...], ...]]


@pytest.fixture(scope="module")
def stores(tmp_path_factory, small_store):
    folder = tmp_path_factory.mktemp("resume")
    small_store(folder / "main", splits={"train": 50})
    small_store(folder / "other", splits={"train": 17}, seed=5)
    return folder


class Run:
    """A run's order and stores. Samples are read plainly, video by video: what every delivery is compared with."""

    def __init__(self, stores, folder, text: str) -> None:
        path = folder / "fit.yaml"
        keys = f"store: {stores / 'main'}\nrun: {folder / 'run'}\nbatch_size: 12\nepochs: 2\n"
        path.write_text(keys + text.replace("OTHER", str(stores / "other")))
        self.config = load_config(path, FitConfig)
        main = WindowData(open_store(self.config.store), "default", "train", config=self.config.data)
        self.sources: Sources = open_sources(self.config, main)
        self.order: BatchOrder = build_order(self.sources, self.config, 1)
        self._plain: dict[tuple[int, int, tuple[int, ...]], Sample] = {}
        self.steps = self.order.steps_before(2)
        assert self.steps > self.order.steps_before(1) > 2

    def expected(self, selection: Selection) -> list[Sample]:
        chosen = zip(selection.window_B.tolist(), map(tuple, selection.choice_BK.tolist()), strict=True)
        return [self._sample(selection.source, window, choice) for window, choice in chosen]

    def _sample(self, source: int, window: int, choice: tuple[int, ...]) -> Sample:
        key = source, window, choice
        if key not in self._plain:
            self._plain[key] = plain_sample(self.sources.datas[source], window, choice)
        return self._plain[key]

    def part(self, step: int, rank: int, world: int) -> Selection:
        return self.order.batch(step).part(rank, world)

    def loader(self, workers: int) -> Loader:
        config = self.config.data.model_copy(update={"workers": workers})
        return Loader(
            self.sources.datas, self.sources.shapes(self.order, 1), config=config, first_ids=self.sources.offsets
        )


def plain_sample(data: WindowData, window: int, choice: tuple[int, ...]) -> Sample:
    table, manifest = data.windows, data.manifest
    video = manifest.video_ids[int(table.video_W[window])]
    first, rows = int(table.first_row_W[window]), int(table.rows_W[window])
    stored = data.stream.read(int(data.stream.index_of([video])[0]), first, rows)
    captions = [int(table.candidates_of(window)[place]) for place in choice if place >= 0]
    ids = tuple(tuple(manifest.caption_tokens(caption).tolist()) for caption in captions)
    texts = tuple(manifest.caption_texts[caption] for caption in captions)
    return video, float(table.start_W[window]), float(table.end_W[window]), stored.tobytes(), texts, ids


def delivered(run: Run, loader: Loader, start: int, rank: int, world: int) -> Iterator[list[Sample]]:
    """What a rank gets from step `start` on, read back from the arrays alone: rows and ids occur once in a store."""
    for batch in loader.batches(lambda step: run.part(step, rank, world), start, run.steps):
        samples = []
        for place, number in enumerate(batch.video_ids_B.tolist()):
            rows = batch.video_BTD[place][batch.video_mask_BT[place]].numpy().tobytes()
            masks = batch.token_mask_BKL[place]
            kept = zip(batch.tokens_BKL[place], masks, batch.caption_mask_BK[place], strict=True)
            ids = tuple(tuple(tokens[mask].tolist()) for tokens, mask, is_one in kept if is_one)
            (video,) = run.sources.video_names([number])
            source = int(np.searchsorted(run.sources.offsets, number, side="right")) - 1
            samples.append((video, *known_by_rows(run.sources.datas[source])[video, rows], rows, ids))
        yield samples


def known_by_rows(data: WindowData) -> dict[tuple[str, bytes], tuple[float, float]]:
    """(video, rows) -> start and end of the window that they are of."""
    if not hasattr(data, "known_by_rows"):
        samples = [plain_sample(data, window, ()) for window in range(len(data))]
        data.known_by_rows = {(video, rows): (start, end) for video, start, end, rows, _, _ in samples}
        assert len(data.known_by_rows) == len(data)
    return data.known_by_rows


def resume_points(run: Run, whole: bool) -> list[tuple[int, int, int]]:
    """(start, rank, world): every one, or a sample of them with both sides of the border between the epochs."""
    points = [(start, rank, world) for world in WORLDS for rank in range(world) for start in range(run.steps)]
    if whole:
        return points
    border = run.order.steps_before(1)
    draw = random.Random(7)
    near = [point for point in points if point[0] in (border - 1, border)]
    return draw.sample(near, 4) + draw.sample(points, 8)


def check(run: Run, workers: int, whole: bool) -> None:
    with run.loader(workers) as loader:
        for start, rank, world in resume_points(run, whole):
            wanted = [run.expected(run.part(step, rank, world)) for step in range(start, run.steps)]
            found = list(delivered(run, loader, start, rank, world))
            assert found == [[sample[:4] + sample[5:] for sample in batch] for batch in wanted], (start, rank, world)


@pytest.mark.parametrize(("order", "workers"), list(zip(ORDERS, (3, 0, 1, 0), strict=True)))
def test_a_resumed_run_gets_what_remains(stores, tmp_path, order, workers):
    check(Run(stores, tmp_path, ORDERS[order]), workers, whole=False)


@pytest.mark.full
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("order", ORDERS)
def test_every_step_every_world_every_number_of_workers(stores, tmp_path, order, workers):
    check(Run(stores, tmp_path, ORDERS[order]), workers, whole=True)


@pytest.mark.parametrize("order", ORDERS)
def test_the_parts_of_the_ranks_are_the_global_batch(stores, tmp_path, order):
    run = Run(stores, tmp_path, ORDERS[order])
    for step in range(run.steps):
        whole = run.expected(run.order.batch(step))
        for world in WORLDS:
            assert [sample for rank in range(world) for sample in run.expected(run.part(step, rank, world))] == whole
