"""Extraction on a GPU: `python benchmarks/gpu_extract.py [--quick]`; says "not run" where there is none.

For each precision: clips a second of the extractor alone (clips ready in memory), clips a second of the pipeline on
generated videos, the share of the time that the extractor waits for frames, and how far the rows lie from float32.
The last line is JSON; ratio is the pipeline's rate over the rate that the slower of its two parts, the GPU alone or
all cores decoding, would allow; the lowest over the precisions.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from extract import SILENT, clips_of, compute, draw_videos

from preprocess.config import PreprocessConfig
from preprocess.extract import TimmSection, build_extractor
from preprocess.extract.runtime import configure_torch_for_determinism
from preprocess.run import run
from shared.store import open_store

GOAL = 0.85
PRECISIONS = ("float32", "bf16", "fp16")


def time_pipeline(section: TimmSection, media: Path, store: Path, limit: int) -> float:
    config = PreprocessConfig(inputs=media / "videos.csv", store=store, streams={"s": section}, device="cuda")
    begun = time.monotonic()
    run(config, SILENT, limit)
    return time.monotonic() - begun


def rows_of(store: Path) -> np.ndarray:
    stream = open_store(store).stream("s")
    return np.concatenate([stream.read(number) for number in range(len(stream.video_ids))]).astype(np.float32)


def measure(precision: str, media: Path, folder: Path, few: int, many: int) -> dict[str, float]:
    section = TimmSection.model_validate({"precision": precision, "sampling": {"fps": 5}, "dtype": "float32"})
    extractor = build_extractor(section, "cuda")
    before = time.process_time()
    clips = list(clips_of(media / "0.mp4", extractor))
    decoding = time.process_time() - before
    compute(extractor, clips)  # loads kernels
    begun = time.monotonic()
    compute(extractor, clips)
    alone = len(clips) / (time.monotonic() - begun)
    start = time_pipeline(section, media, folder / f"{precision}-few", few)
    wall = time_pipeline(section, media, folder / precision, many) - start
    rate = len(clips) * (many - few) / wall
    return {
        "ratio": rate / min(alone, len(os.sched_getaffinity(0)) * len(clips) / decoding),
        "extractor_clips_per_s": alone,
        "pipeline_clips_per_s": rate,
        "share_waiting": max(0.0, 1 - rate / alone),
        "start_and_first_videos_s": start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer videos, for a first look")
    few, many = (16, 48) if parser.parse_args().quick else (32, 256)
    if not torch.cuda.is_available():
        print("not run: torch sees no CUDA device here")
        print(json.dumps({"name": "gpu_extract", "ratio": None, "goal": GOAL, "met": None, "why": "no CUDA device"}))
        return
    configure_torch_for_determinism()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        media = folder / "media"
        media.mkdir()
        draw_videos(media, many, seconds=20)
        cases = {precision: measure(precision, media, folder, few, many) for precision in PRECISIONS}
        exact = rows_of(folder / "float32")
        for precision, case in cases.items():
            error = np.linalg.norm(rows_of(folder / precision) - exact) / np.linalg.norm(exact)
            case["relative_error"] = float(error)
            print(precision, " ".join(f"{key} {value:.4g}" for key, value in case.items()))
    ratio = min(case["ratio"] for case in cases.values())
    device = torch.cuda.get_device_name()
    summary = {"name": "gpu_extract", "ratio": round(ratio, 3), "goal": GOAL, "met": ratio >= GOAL, "device": device}
    print(json.dumps({**summary, "cases": cases}))


if __name__ == "__main__":
    main()
