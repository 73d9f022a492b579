"""Out of memory: smaller batches for the whole run, and the store that this size would have made from the start."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import ray
import torch

from preprocess import ray_engine
from preprocess.config import PreprocessConfig
from preprocess.extract.timm_image import TimmExtractor
from preprocess.extraction import Progress
from preprocess.run import run
from shared.errors import EnvironmentLacking
from shared.verify import verify_store

Compute = Callable[[TimmExtractor, torch.Tensor], np.ndarray]
OUTSIDE = {".cache", "runs"}


def limited(compute: Compute, fits: int, calls: Iterator[int]) -> Compute:
    """`compute` on a device that from the first of `calls` on holds no more than `fits` clips."""

    def limit(self: TimmExtractor, clips: torch.Tensor) -> np.ndarray:
        if len(clips) > fits and next(calls, 0) == 0:
            raise torch.OutOfMemoryError(f"no room for {len(clips)} clips")
        return compute(self, clips)

    return limit


class SmallDevice(ray_engine.Extraction):
    """An extraction actor whose device holds two clips."""

    def prepare(self) -> None:
        super().prepare()
        TimmExtractor.compute = limited(TimmExtractor.compute, 2, iter(()))  # type: ignore[method-assign]


def configured(small_media: Path, folder: Path, engine: str = "here", **section: object) -> PreprocessConfig:
    return PreprocessConfig.model_validate(
        {
            "inputs": small_media / "videos.csv",
            "store": folder / "store",
            "streams": {
                "default": {"kind": "timm", "size": 32, **section},
                "thumbs": {"kind": "frames", "size": 64, "sampling": {"strategy": "uniform", "frames": 3}},
            },
            "engine": engine,
            "shard_videos": 3,
            "ray": {"cpus": 2, "object_store_mib": 128},
        }
    )


def content(store: Path) -> dict[str, bytes]:
    files = (path for path in store.rglob("*") if path.is_file() and path.relative_to(store).parts[0] not in OUTSIDE)
    return {path.relative_to(store).as_posix(): path.read_bytes() for path in files}


def make(config: PreprocessConfig) -> list[str]:
    notes: list[str] = []
    run(config, Progress(note=notes.append, units=lambda *_: None))
    return notes


@pytest.fixture(scope="module")
def small_batches(small_media: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    config = configured(small_media, tmp_path_factory.mktemp("small"), batch_size=2)
    make(config)
    return content(config.store)


@pytest.mark.parametrize("before", [0, 4])
def test_the_store_is_what_the_smaller_batch_makes(
    small_media: Path, tmp_path: Path, small_batches: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """before: batches that fit, so that shards of the larger size are in the store already."""
    calls = iter(range(before, 0, -1))
    monkeypatch.setattr(TimmExtractor, "compute", limited(TimmExtractor.compute, 2, calls))
    config = configured(small_media, tmp_path, batch_size=8)
    notes = make(config)
    assert content(config.store) == small_batches
    said = [note for note in notes if "out of memory" in note]
    assert ["8 clips" in said[0], "no room for 8 clips" in said[0], "4 clips" in said[1]] == [True] * 3
    (path,) = (config.store / "runs").iterdir()
    record = json.loads(path.read_bytes())
    assert [(e["stream"], e["batch_size"], e["instead"]) for e in record["out_of_memory"]] == [
        ("default", 8, 4),
        ("default", 4, 2),
    ]
    assert record["ended"] is not None
    assert (record["extracted"] > 14) == (before > 0)
    assert make(config) == []  # the size is remembered: nothing to do, nothing tried
    assert verify_store(config.store) == []


def test_what_has_failed_in_this_run_is_not_tried_a_third_time(
    small_media: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry that runs out of memory after the failures: only the stream that did not fit is made again."""
    lines = (small_media / "videos.csv").read_text().splitlines()
    inputs = small_media / "failures first.csv"
    inputs.write_text("\n".join([lines[0], *lines[:-3:-1], *lines[1:-2]]) + "\n")
    settings = configured(small_media, tmp_path, batch_size=4).model_dump() | {"inputs": inputs}
    thumbs = {"thumbs": settings["streams"]["thumbs"]}
    make(PreprocessConfig.model_validate(settings | {"streams": thumbs}))
    monkeypatch.setattr(TimmExtractor, "compute", limited(TimmExtractor.compute, 2, iter((1,))))
    notes: list[str] = []
    progress = Progress(note=notes.append, units=lambda *_: None)
    run(PreprocessConfig.model_validate(settings), progress, retry_failed="all")
    announced = [note for note in notes if note.startswith("extracting")]
    assert ["2 failed before" in note for note in announced] == [True, False]
    assert ["14 new" in note for note in announced] == [True, True]


def test_actors_report_it_as_well(
    small_media: Path, tmp_path: Path, small_batches: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "_EXTRACT_ACTOR", ray.remote(max_restarts=0)(SmallDevice))
    config = configured(small_media, tmp_path, engine="ray", batch_size=4)
    notes = make(config)
    assert content(config.store) == small_batches
    assert sum("out of memory" in note for note in notes) == 1


def test_one_clip_that_does_not_fit_ends_the_run(
    small_media: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimmExtractor, "compute", limited(TimmExtractor.compute, 0, iter(())))
    with pytest.raises(EnvironmentLacking, match="not even one clip fits"):
        make(configured(small_media, tmp_path, batch_size=2))
