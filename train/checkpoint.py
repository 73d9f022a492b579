"""Everything a run needs to go on as if it had never stopped, in one file that is whole or absent."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from shared.atomic import disk_full_stops, fsync_file, move_into_place
from shared.config import Config
from shared.errors import InputFileError, RequestError
from train.distributed import World, gather_plain

VERSION = 1
FOLDER = "checkpoints"
BEST = "best.pt"
_NAME = re.compile(r"^step-(\d{8,})\.pt$")


class CheckpointConfig(Config):
    """every_epochs, every_steps: when to save, besides at the end and on a signal; 0 for never.

    keep: how many of the last ones stay. metric: what decides `best.pt`; recalls are best high, MedR and MeanR low.
    """

    every_epochs: int = Field(default=1, ge=0)
    every_steps: int = Field(default=0, ge=0)
    keep: int = Field(default=2, ge=1)
    metric: str = "text_to_video.R@10"


def checkpoint_path(run: Path, step: int) -> Path:
    return run / FOLDER / f"step-{step:08d}.pt"


def best_path(run: Path) -> Path:
    return run / FOLDER / BEST


def last_checkpoint(run: Path) -> Path | None:
    """The checkpoint of a run folder with the most steps, or None."""
    return _by_step(run)[-1] if _by_step(run) else None


def save_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write tensors and plain values; `path` holds the old content or the new whatever happens.

    Raises StoppedEarly when the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with disk_full_stops(path):
        torch.save({"version": VERSION, **content}, temporary)
        fsync_file(temporary)
    move_into_place(temporary, path)


def drop_old(run: Path, keep: int) -> None:
    """Delete all but the last `keep` numbered checkpoints; `best.pt` stays."""
    for path in _by_step(run)[:-keep]:
        path.unlink()


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, tensors in CPU memory. Nothing in the file is executed (`weights_only`).

    Raises RequestError when it does not exist, InputFileError when it is no checkpoint of this version.
    """
    if not path.is_file():
        raise RequestError(f"checkpoint {path} does not exist; give a .pt file or a run folder with {FOLDER}/")
    broken = f"{path} is no checkpoint of `train fit`, or it is damaged; give another file of its folder"
    if not zipfile.is_zipfile(path):
        raise InputFileError(broken)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, zipfile.BadZipFile) as error:
        raise InputFileError(f"{broken}: {str(error).splitlines()[0]}") from None
    if not isinstance(content, dict) or content.get("version") != VERSION:
        found = content.get("version") if isinstance(content, dict) else type(content).__name__
        raise InputFileError(
            f"{path} has checkpoint version {found}, expected {VERSION}; train again with this version"
        )
    return content


def resolve_checkpoint(target: Path) -> Path:
    """A file as it is; of a run folder the best checkpoint, or the last where none is called best."""
    if not target.is_dir():
        return target
    if best_path(target).is_file():
        return best_path(target)
    last = last_checkpoint(target)
    if last is None:
        raise RequestError(f"run folder {target} has no checkpoint yet; run `python -m train fit CONFIG` first")
    return last


def random_state(device: torch.device) -> torch.Tensor:
    """uint8 (N,): the state of this rank's generators, the CPU's first, then the GPU's where `device` is one."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return torch.cat(states)


def gather_random_states(state_N: torch.Tensor, world: World) -> torch.Tensor:
    """uint8 (W, N): the given states of all ranks; every rank calls it."""
    return gather_plain(state_N[None].to(world.device), world).cpu()


def restore_random_state(states_WN: torch.Tensor, world: World) -> bool:
    """Set this rank's generators; False, and nothing set, where the states are of another world size or device type."""
    present = random_state(world.device)
    if states_WN.shape != (world.size, len(present)):
        return False
    state_N = states_WN[world.rank]
    cpu_bytes = len(torch.get_rng_state())
    torch.set_rng_state(state_N[:cpu_bytes].clone())
    if world.device.type == "cuda":
        torch.cuda.set_rng_state(state_N[cpu_bytes:].clone(), world.device)
    return True


def differences(before: Any, now: Any, key: str = "") -> list[str]:
    """What changed between two nested plain values, one line a leaf: `optim.lr: 0.001 -> 0.01`."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        return [
            line
            for name in sorted({*before, *now})
            for line in differences(before.get(name), now.get(name), f"{key}.{name}" if key else str(name))
        ]
    if before == now:
        return []
    return [f"{key}: {before!r} -> {now!r}"]


def _by_step(run: Path) -> list[Path]:
    """Numbered checkpoints of a run folder, fewest steps first."""
    found = [(int(match[1]), path) for path in (run / FOLDER).glob("*.pt") if (match := _NAME.match(path.name))]
    return [path for _, path in sorted(found)]
