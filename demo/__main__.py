"""`python -m demo`: the whole path, one subprocess a step, each printed as it can be typed.

A step that fails ends the demo with its exit code. What an earlier run left is used again: the same corpus is not drawn
twice, `preprocess run` and `train fit` go on from where they are and say so.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEFAULT_FOLDER = Path(".demo")
PREPROCESS_CONFIG = "configs/preprocess/demo.yaml"
TRAIN_CONFIG = "configs/train/demo.yaml"
RANKS = 2


@dataclass(frozen=True)
class Step:
    title: str
    module: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", self.module, *self.arguments]

    @property
    def shown(self) -> str:
        """The command as a person in the checkout would type it."""
        python = Path(sys.executable)
        name = str(python.relative_to(ROOT)) if python.is_relative_to(ROOT) else str(python)
        return shlex.join([name, *self.command[1:]])


def steps(folder: Path, seed: int, videos: int) -> list[Step]:
    """The six steps; the two configs are overridden only where they differ from what was asked for."""
    corpus, store, run = folder / "corpus", folder / "store", folder / "run"
    moved = folder != DEFAULT_FOLDER
    inputs = [f"inputs={corpus / 'videos.csv'}", f"store={store}"] if moved else []
    training = [f"store={store}", f"run={run}"] if moved else []
    if seed:
        training.append(f"seed={seed}")
    launch = ("--standalone", f"--nproc-per-node={RANKS}", "-m", "train", "fit")
    draw = (str(corpus), "--seed", str(seed), "--videos", str(videos))
    return [
        Step("Draw a corpus of short videos with narration", "demo.corpus", draw),
        Step(
            "Decode, extract features, clean captions, cut windows", "preprocess", ("run", PREPROCESS_CONFIG, *inputs)
        ),
        Step("Check every byte of the store", "preprocess", ("verify", str(store))),
        Step(f"Train on {RANKS} ranks", "torch.distributed.run", (*launch, TRAIN_CONFIG, *training)),
        Step("Find moments of held-out videos by sentence", "train", ("evaluate", str(run))),
        Step("Show what was found and what was missed", "train", ("report", str(run))),
    ]


def run_steps(plan: list[Step]) -> int:
    """Run the steps in order; the exit code of the first that fails, else 0."""
    for number, step in enumerate(plan, start=1):
        print(f"\n[{number}/{len(plan)}] {step.title}\n    $ {step.shown}", flush=True)
        began = time.monotonic()
        code = subprocess.run(step.command, cwd=ROOT, check=False).returncode
        if code != 0:
            print(f"\nStep {number} ended with exit code {code}; its message is above.", file=sys.stderr)
            return code
        print(f"    done in {time.monotonic() - began:.0f} s", flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description="Run the whole path on a corpus drawn here.")
    parser.add_argument("--seed", type=int, default=0, help="of the corpus and of training (default: %(default)s)")
    parser.add_argument(
        "--folder", type=Path, default=DEFAULT_FOLDER, help="where all of it goes (default: %(default)s)"
    )
    parser.add_argument("--videos", type=int, default=120, help="how many to draw (default: %(default)s)")
    asked = parser.parse_args()
    return run_steps(steps(asked.folder, asked.seed, asked.videos))


if __name__ == "__main__":
    sys.exit(main())
