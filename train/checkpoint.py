"""Everything a run needs to go on as if it had never stopped, in one file that is whole or absent."""

from __future__ import annotations

import itertools
import os
import pickle
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from shared.atomic import disk_full_stops, fsync_directory, fsync_file, move_into_place
from shared.config import Config
from shared.errors import DamageFound, InputFileError, RequestError
from shared.fingerprint import hash_file
from train.distributed import World, gather_plain

VERSION = 2
FOLDER = "checkpoints"
BEST = "best.pt"
# A file of torch.save is a zip archive: how such begin, how their last record begins, and how long that is.
_ZIP_BEGIN, _ZIP_END, _ZIP_END_BYTES = b"PK\x03\x04", b"PK\x05\x06", 22
# The comment after it: this, and the xxh3-128 of all before as 32 hex digits.
_SEAL = b"clipmill checkpoint xxh3-128 "
_SEAL_BYTES = len(_SEAL) + 32
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
    found = _by_step(run / FOLDER)
    return found[-1] if found else None


def save_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write tensors and plain values; `path` holds the old content or the new whatever happens.

    Raises StoppedEarly when the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with disk_full_stops(path):
            _write(temporary, {"version": VERSION, **content})
            _seal(temporary)
            fsync_file(temporary)
        move_into_place(temporary, path)
    except BaseException:
        # Before anything else is written: on a full disk it has the room that exit.json needs.
        temporary.unlink(missing_ok=True)
        raise


def drop_old(run: Path, keep: int, done: int) -> None:
    """Delete the numbered checkpoints before the last `keep` of those of at most `done` steps; `best.pt` stays."""
    for path in _up_to(run, done)[:-keep]:
        path.unlink()


def set_aside(run: Path, done: int) -> list[Path]:
    """Rename the numbered checkpoints of more than `done` steps, so that none of them is gone on from; the new paths.

    They are of a branch that is left when a run goes on from an earlier checkpoint. `left-step-00000015.pt`, or
    `left-2-step-00000015.pt` where an earlier branch has the name.
    """
    kept = _up_to(run, done)
    later = [path for path in _by_step(run / FOLDER) if path not in kept]
    moved = []
    for path in later:
        names = (path.with_name(f"left{f'-{n}' if n > 1 else ''}-{path.name}") for n in itertools.count(1))
        moved.append(path.rename(next(name for name in names if not os.path.lexists(name))))
    if moved:
        fsync_directory(run / FOLDER)
    return moved


def drop_unfinished(run: Path) -> None:
    """Delete what a process that was killed in `save_checkpoint` left; only while nobody else saves there."""
    for folder in (run, run / FOLDER):
        for path in folder.glob(".*.pt.tmp"):
            path.unlink()


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, tensors in CPU memory. Nothing in the file is executed (`weights_only`).

    Raises RequestError when it is no file, InputFileError when it is no checkpoint of this version, DamageFound when it
    was changed or cut, naming the checkpoint to go back to.
    """
    if not path.is_file():
        raise RequestError(f"checkpoint {path} {_why_no_file(path)}")
    _check_seal(path)
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        # Not what torch says of the former: it advises to load the file without `weights_only`, which executes it.
        what = str(error).splitlines()[0]
        if isinstance(error, pickle.UnpicklingError):
            what = "it holds more than tensors and plain values, which could be made to run a program"
        raise InputFileError(f"{path} is no checkpoint that this version reads: {what}; give another file") from None
    if not isinstance(content, dict):
        raise InputFileError(f"{path} is no checkpoint: it holds a {type(content).__name__}; give another file")
    if content.get("version") != VERSION:
        raise InputFileError(
            f"{path} has checkpoint version {content.get('version')}, expected {VERSION}; train again with this version"
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
    set_random_state(states_WN[world.rank], world.device)
    return True


def set_random_state(state_N: torch.Tensor, device: torch.device) -> None:
    """Set the generators that `random_state` tells of."""
    cpu_bytes = len(torch.get_rng_state())
    torch.set_rng_state(state_N[:cpu_bytes].clone())
    if device.type == "cuda":
        torch.cuda.set_rng_state(state_N[cpu_bytes:].clone(), device)


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


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with path.open("wb") as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:
            # What stops a write shows there as a place in the file that torch did not expect.
            if isinstance(error.__context__, (OSError, KeyboardInterrupt)):
                raise error.__context__ from None
            raise


def _up_to(run: Path, done: int) -> list[Path]:
    return [path for path in _by_step(run / FOLDER) if step_of(path) <= done]


def _seal(path: Path) -> None:
    """Append the xxh3-128 of the file to it, as the comment that a zip archive may end with: torch still opens it."""
    with path.open("r+b") as file:
        # torch.save writes no comment, so the last two bytes are its length, 0.
        file.seek(-2, os.SEEK_END)
        file.write(struct.pack("<H", _SEAL_BYTES))
        file.flush()
        seal = _SEAL + hash_file(path).encode()
        file.seek(0, os.SEEK_END)
        file.write(seal)


def _check_seal(path: Path) -> None:
    """Raise DamageFound for a checkpoint that was changed or cut, InputFileError for a file that never was one."""
    size = path.stat().st_size
    with path.open("rb") as file:
        begin = file.read(len(_ZIP_BEGIN))
        file.seek(max(0, size - _SEAL_BYTES))
        end = file.read()
    sealed = end.startswith(_SEAL)
    # A whole archive, its comment's length 0, is somebody else's; one that ends in another way was cut.
    last = end[-_ZIP_END_BYTES:]
    foreign = begin != _ZIP_BEGIN or (last.startswith(_ZIP_END) and last.endswith(b"\0\0"))
    if not sealed and foreign and not _is_of_run(path):
        raise InputFileError(f"{path} is no checkpoint of `train fit`; give another file of its folder")
    if not sealed or hash_file(path, size - _SEAL_BYTES).encode() != end[len(_SEAL) :]:
        raise DamageFound(f"checkpoint {path} is damaged: it was changed or cut; {_way_back(path)}")


def _is_of_run(path: Path) -> bool:
    """Whether a path is one that a run saves at."""
    return path.parent.name == FOLDER and (path.name == BEST or _NAME.match(path.name) is not None)


def _why_no_file(path: Path) -> str:
    if path.is_symlink() and not path.exists():
        what = f"is a link to {path.readlink()}, which does not exist"
    elif path.exists():
        what = "is a folder, expected a file" if path.is_dir() else "is no regular file"
    else:
        return f"does not exist; give a .pt file or a run folder with {FOLDER}/"
    return f"{what}; {_way_back(path) if _is_of_run(path) else 'give a .pt file'}"


def _way_back(path: Path) -> str:
    """What to do about a damaged checkpoint: the one before it, where there is one."""
    others = [other for other in _by_step(path.parent) if other != path]
    before = [other for other in others if not _NAME.match(path.name) or step_of(other) < step_of(path)]
    if not before:
        return "there is no earlier one beside it: train again with another run=PATH"
    return f"go back to {before[-1]} (`fit` with resume={before[-1]}; `evaluate` and `report` take the file)"


def step_of(path: Path) -> int:
    """The steps that a numbered checkpoint was saved after."""
    match = _NAME.match(path.name)
    assert match is not None, "only asked of numbered checkpoints"
    return int(match[1])


def _by_step(folder: Path) -> list[Path]:
    """Numbered checkpoints of a folder, fewest steps first."""
    found = [(int(match[1]), path) for path in folder.glob("*.pt") if (match := _NAME.match(path.name))]
    return [path for _, path in sorted(found)]
