"""How much of the machine the pipeline puts to use: `python benchmarks/extract.py [--quick]`.

Useful work is what decoding alone and the extractor alone cost in CPU seconds, with one thread, in one plain process a
core, all at once: cores that work at the same time share caches and memory, which makes each of them slower, in the
pipeline as here. The figure is that work over cores x wall time of `preprocess run` under Ray: 1 would be a pipeline
that costs nothing and never waits. `plain_processes` is the same figure of the plain processes, which neither wait nor
pass anything on: what the machine gave at that time, since other programs of it make both worse.

Once with an extractor that is nearly free (`frames`), where decoding is all there is, and once with a real one
(`timm`). Two runs are made, of few videos and of many, and their difference counts: starting workers and loading a
model take as long for a thousand videos, and are printed apart. Ray itself is started once, before. All of it is done
in rounds, of which the median counts. A plain loop (decode a video, compute it, save it, next) is timed once on the
same videos. The last line is JSON; ratio is the lower of the two.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import NamedTuple

import imageio_ffmpeg
import numpy as np
import torch
from ray.cluster_utils import Cluster

from preprocess.config import PreprocessConfig, RayOptions
from preprocess.decode import DecodeOptions, open_video
from preprocess.decode.clips import Clip, iterate_clips
from preprocess.extract import ExtractorSection, FramesSection, TimmSection, build_extractor
from preprocess.extract.base import Extractor
from preprocess.extract.runtime import configure_torch_for_determinism
from preprocess.extraction import Progress
from preprocess.run import run

GOAL = 0.85
CASES: dict[str, ExtractorSection] = {"frames": FramesSection(size=224), "timm": TimmSection()}
FEW, MANY = 16, {"frames": 208, "timm": 48}
DISTINCT = 4
SILENT = Progress(note=lambda _: None, units=lambda *_: None)


def draw_videos(folder: Path, count: int, seconds: int) -> None:
    """Moving, noisy pictures in H.264 with B-frames, as most material is, and their input manifest."""
    for number in range(DISTINCT):
        source = f"testsrc2=size=640x360:rate=25:duration={seconds},noise=alls=12:allf=t,hue=h={60 * number}"
        encode = ["-c:v", "libx264", "-preset", "fast", "-crf", "26", "-pix_fmt", "yuv420p"]
        command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", "-f", "lavfi", "-i", source]
        subprocess.run([*command, *encode, str(folder / f"{number}.mp4")], check=True)
    for number in range(DISTINCT, count):
        shutil.copy(folder / f"{number % DISTINCT}.mp4", folder / f"{number}.mp4")
    lines = [f"v{number},{number}.mp4\n" for number in range(count)]
    (folder / "videos.csv").write_text("".join(["video_id,video_path\n", *lines]))


def clips_of(path: Path, extractor: Extractor) -> Iterator[Clip]:
    with open_video(path, [extractor.spec.sampling], DecodeOptions(), extractor.spec.short_side) as video:
        yield from (clip for _, clip in iterate_clips(video))


def compute(extractor: Extractor, clips: list[Clip]) -> np.ndarray:
    """Rows of these clips in batches of the one size, the last one padded."""
    size, rows = extractor.spec.batch_size, []
    for first in range(0, len(clips), size):
        batch = clips[first : first + size]
        padded = batch + batch[-1:] * (size - len(batch))
        rows.append(extractor.compute(torch.stack([extractor.prepare(c.frames_THWC) for c in padded]))[: len(batch)])
    return np.concatenate(rows)


class Alone(NamedTuple):
    """CPU seconds of decoding and of the extractor; wall seconds of both."""

    decoding: float
    model: float
    wall: float


def work_alone(section: ExtractorSection, paths: list[Path]) -> Alone:
    """Decoding, then the extractor, of these videos one by one, in this process."""
    configure_torch_for_determinism()
    extractor = build_extractor(section, "cpu")
    compute(extractor, list(clips_of(paths[0], extractor)))  # what is loaded on first use is loaded now
    decoding = model = 0.0
    begun = time.monotonic()
    for path in paths:
        before = time.process_time()
        clips = list(clips_of(path, extractor))
        decoding += time.process_time() - before
        before = time.process_time()
        compute(extractor, clips)
        model += time.process_time() - before
    return Alone(decoding, model, time.monotonic() - begun)


def work_on_all_cores(section: ExtractorSection, paths: list[Path], cores: int) -> Alone:
    """The sum of CPU seconds of one process a core, each with its part of the videos; wall seconds of the slowest."""
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        parts = list(pool.map(work_alone, [section] * cores, [paths[core::cores] for core in range(cores)]))
    return Alone(sum(p.decoding for p in parts), sum(p.model for p in parts), max(p.wall for p in parts))


def time_plain_loop(section: ExtractorSection, paths: list[Path], folder: Path) -> float:
    """Wall seconds."""
    extractor = build_extractor(section, "cpu")
    compute(extractor, list(clips_of(paths[0], extractor)))
    begun = time.monotonic()
    for number, path in enumerate(paths):
        np.save(folder / f"{number}.npy", compute(extractor, list(clips_of(path, extractor))))
    return time.monotonic() - begun


def time_pipeline(section: ExtractorSection, media: Path, store: Path, limit: int, address: str) -> float:
    """Wall seconds of a run over the first `limit` videos, on the Ray cluster at `address`."""
    config = PreprocessConfig(
        inputs=media / "videos.csv", store=store, streams={"s": section}, device="cpu", ray=RayOptions(address=address)
    )
    begun = time.monotonic()
    result = run(config, SILENT, limit)
    if result.failures or result.extracted != limit:
        raise RuntimeError(f"the pipeline did not do its work: {result}")
    return time.monotonic() - begun


def one_round(name: str, media: Path, folder: Path, address: str) -> dict[str, float]:
    section, paths = CASES[name], [media / f"{number}.mp4" for number in range(FEW, MANY[name])]
    cores = len(os.sched_getaffinity(0))
    alone = work_on_all_cores(section, paths, cores)
    start = time_pipeline(section, media, folder / "few", FEW, address)
    spent = time_pipeline(section, media, folder / "many", MANY[name], address) - start
    work = alone.decoding + alone.model
    return {
        "ratio": work / (cores * spent),
        "plain_processes": work / (cores * alone.wall),
        "decode_cpu_s": alone.decoding,
        "model_cpu_s": alone.model,
        "pipeline_s": spent,
        "start_and_first_videos_s": start,
    }


def measure(name: str, media: Path, folder: Path, rounds: int, address: str) -> dict[str, float]:
    """Medians of the rounds; printed with the ratio of each."""
    done = []
    for number in range(rounds):
        done.append(one_round(name, media, folder / f"{name}-{number}", address))
        shutil.rmtree(folder / f"{name}-{number}")
    figures = {key: median(one[key] for one in done) for key in done[0]}
    paths = [media / f"{number}.mp4" for number in range(FEW, MANY[name])]
    figures["against_plain_loop"] = time_plain_loop(CASES[name], paths, folder) / figures["pipeline_s"]
    print(f"{name}: {len(paths)} videos on {len(os.sched_getaffinity(0))} cores, median of {rounds}")
    for key, value in figures.items():
        print(f"  {key:28} {value:8.2f}")
    print("  ratios of the rounds          ", *(f"{one['ratio']:.2f}" for one in done))
    return {key: round(value, 3) for key, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, for a first look")
    rounds = 1 if parser.parse_args().quick else 3
    configure_torch_for_determinism()
    head = {"num_cpus": len(os.sched_getaffinity(0)), "object_store_memory": 2**30, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        with tempfile.TemporaryDirectory() as folder:
            media = Path(folder) / "media"
            media.mkdir()
            draw_videos(media, max(MANY.values()), seconds=20)
            cases = {name: measure(name, media, Path(folder), rounds, cluster.address) for name in CASES}
    finally:
        cluster.shutdown()
    ratio = min(case["ratio"] for case in cases.values())
    print(json.dumps({"name": "extract", "ratio": ratio, "goal": GOAL, "met": ratio >= GOAL, "cases": cases}))


if __name__ == "__main__":
    main()
