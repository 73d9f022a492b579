"""What a step's loss costs in memory and time, forward and backward: `python benchmarks/loss.py [--quick]`.

MIL-NCE over bags of 5, in tiles, against three plain forms: the whole matrix with our masks (`tile: 0`), the leanest
that can be written without masks, and the authors' release, which concatenates the matrix with its transpose. With one
text a clip, InfoNCE and the sigmoid loss against open_clip's classes. float32, 256 dimensions, one thread.

Memory is the peak of the process's resident set above what it holds once inputs exist and everything is loaded
(`VmHWM`, set back through /proc/self/clear_refs, so Linux only), gradients of the inputs included; large blocks go back
to the system when freed. Time is CPU seconds, best of the rounds, in a process of its own with the allocator as it is.
inf-cl runs on CUDA alone and is not compared. Who computes another loss is told.

The last line is JSON, at 4,096 clips: ratio is the leanest plain form's memory over ours, goal 20; time_ratio our time
over the fastest plain form's, which may be 2.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from train.losses import info_nce, mil_nce, sigmoid

DIM, TEMPERATURE, BIAS = 256, 0.07, -10.0
GOAL, TIME_GOAL, GOAL_CLIPS = 20.0, 2.0, 4096
LossOf = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def everything(text_BKD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A full mask, and every clip a video of its own."""
    return torch.ones(text_BKD.shape[:2], dtype=torch.bool), torch.arange(len(text_BKD))


def ours_mil_nce(tile: int | str, positives: str = "once") -> LossOf:
    def loss(video_BD: torch.Tensor, text_BKD: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        return mil_nce(
            video_BD, text_BKD, *everything(text_BKD), temperature=temperature, tile=tile, positives=positives
        )

    return loss


def lean_mil_nce(video_BD: torch.Tensor, text_BKD: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Own texts stand in both sums; what is counted too often is taken out of their logarithm."""
    logit_BBK = (video_BD / temperature @ text_BKD.flatten(0, 1).T).view(len(video_BD), *text_BKD.shape[:2])
    positive_B = logit_BBK.diagonal().logsumexp(dim=0)
    both_B = torch.logaddexp(logit_BBK.logsumexp(dim=(1, 2)), logit_BBK.logsumexp(dim=(0, 2)))
    denominator_B = both_B + torch.log1p(-(positive_B - both_B).exp())
    return (denominator_B - positive_B).mean()


def released_mil_nce(video_BD: torch.Tensor, text_BKD: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """The arithmetic of the authors' release, with a temperature."""
    logit_BBK = (video_BD / temperature @ text_BKD.flatten(0, 1).T).view(len(video_BD), len(video_BD), -1)
    positive_B = (logit_BBK * torch.eye(len(video_BD))[:, :, None]).sum(dim=1).logsumexp(dim=1)
    denominator_B = torch.cat((logit_BBK, logit_BBK.permute(1, 0, 2)), dim=1).flatten(1).logsumexp(dim=1)
    return (denominator_B - positive_B).mean()


def ours_info_nce(video_BD: torch.Tensor, text_BKD: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    return info_nce(video_BD, text_BKD, *everything(text_BKD), temperature=temperature)


def ours_sigmoid(video_BD: torch.Tensor, text_BKD: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    return sigmoid(video_BD, text_BKD, *everything(text_BKD), temperature=temperature, bias=BIAS)


def open_clip_clip(video_BD: torch.Tensor, text_BKD: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    from open_clip.loss import ClipLoss

    loss: torch.Tensor = ClipLoss()(video_BD, text_BKD[:, 0], 1 / temperature)
    return loss


def open_clip_siglip(video_BD: torch.Tensor, text_BKD: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    from open_clip.loss import SigLipLoss

    loss: torch.Tensor = SigLipLoss()(video_BD, text_BKD[:, 0], 1 / temperature, torch.tensor(BIAS))
    return loss


# Texts a clip, and who computes it; ours comes first.
GROUPS: dict[str, tuple[int, dict[str, LossOf]]] = {
    "mil_nce": (
        5,
        {
            "clipmill": ours_mil_nce("auto"),
            "clipmill whole": ours_mil_nce(0),
            "lean plain": lean_mil_nce,
        },
    ),
    "mil_nce twice": (5, {"clipmill": ours_mil_nce("auto", "twice"), "release": released_mil_nce}),
    "info_nce": (1, {"clipmill": ours_info_nce, "open_clip": open_clip_clip}),
    "sigmoid": (1, {"clipmill": ours_sigmoid, "open_clip": open_clip_siglip}),
}


def draw(clips: int, texts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(clips)
    video_BD, text_BKD = (torch.randn(*shape, DIM, generator=draws) for shape in ((clips,), (clips, texts)))
    # In place: the blocks of a copy would be found again, and the peak would look lower than it is.
    video_BD /= video_BD.norm(dim=-1, keepdim=True)
    text_BKD /= text_BKD.norm(dim=-1, keepdim=True)
    return video_BD.requires_grad_(), text_BKD.requires_grad_(), torch.tensor(TEMPERATURE, requires_grad=True)


def resident_mib(field: str) -> float:
    """VmRSS, what is resident now, or VmHWM, the most since the last reset."""
    [line] = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(field)]
    return int(line.split()[1]) / 1024


def work(group: str, name: str, clips: int, rounds: int) -> None:
    """In a process of its own: print peak memory of the first round, the fastest round and the loss."""
    torch.set_num_threads(1)
    texts, losses = GROUPS[group]
    losses[name](*draw(8, texts)).backward()  # what is loaded on first use is loaded now
    inputs = draw(clips, texts)
    Path("/proc/self/clear_refs").write_text("5")
    before, seconds, peak = resident_mib("VmRSS"), [], 0.0
    for _ in range(rounds):
        begin = time.process_time()
        loss = losses[name](*inputs)
        loss.backward()
        seconds.append(time.process_time() - begin)
        peak = peak or resident_mib("VmHWM") - before
        for leaf in inputs:
            leaf.grad = None
    print(json.dumps({"mib": peak, "seconds": min(seconds), "loss": loss.item()}))


def measure(group: str, name: str, clips: int, rounds: int) -> dict[str, float]:
    """Memory from one process, time from another: giving blocks back at once costs time."""
    command = [sys.executable, __file__, "--work", group, "--who", name, "--clips", str(clips), "--rounds"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    frugal = {**environment, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    memory, speed = (
        json.loads(subprocess.run([*command, str(n)], check=True, capture_output=True, text=True, env=env).stdout)
        for n, env in ((1, frugal), (rounds, environment))
    )
    return {"mib": memory["mib"], "seconds": speed["seconds"], "loss": speed["loss"]}


def compete(group: str, clips: int, rounds: int) -> dict[str, dict[str, float]]:
    names = GROUPS[group][1]
    results = {name: measure(group, name, clips, rounds) for name in names}
    expected = results["clipmill"]["loss"]
    for name, result in results.items():
        same = abs(result["loss"] - expected) <= 1e-4 * abs(expected)
        print(
            f"{group:14} {clips:5} clips  {name:15} {result['mib']:9.1f} MiB {result['seconds']:8.3f} s CPU"
            f"{'' if same else '   another loss'}",
            flush=True,
        )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="256 and 1,024 clips, one round, for a first look")
    parser.add_argument("--work", choices=list(GROUPS), help=argparse.SUPPRESS)
    parser.add_argument("--who", help=argparse.SUPPRESS)
    parser.add_argument("--clips", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work, arguments.who, arguments.clips, arguments.rounds)
        return
    sizes = [256, 1024] if arguments.quick else [256, 512, 1024, 2048, 4096, 8192]
    rounds = 1 if arguments.quick else 2
    results = {clips: {group: compete(group, clips, rounds) for group in GROUPS} for clips in sizes}
    clips = GOAL_CLIPS if GOAL_CLIPS in sizes else sizes[-1]
    ours, *plain = results[clips]["mil_nce"].values()
    ratio = min(peer["mib"] for peer in plain) / ours["mib"]
    time_ratio = ours["seconds"] / min(peer["seconds"] for peer in plain)
    summary = {"name": "loss", "clips": clips, "ratio": round(ratio, 2), "goal": GOAL}
    summary |= {"time_ratio": round(time_ratio, 2), "met": ratio >= GOAL and time_ratio <= TIME_GOAL}
    print(json.dumps({**summary, "results": results, "not_usable": {"inf-cl": "it needs CUDA"}}))


if __name__ == "__main__":
    main()
