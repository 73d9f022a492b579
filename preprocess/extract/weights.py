"""Weights: found or clearly missed, loaded without running anybody's code, hashed, and matched key by key."""

from __future__ import annotations

import logging
import pickle
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
import xxhash
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from shared.errors import EnvironmentLacking, RequestError
from shared.resources import resolve_resource

ModuleT = TypeVar("ModuleT", bound=nn.Module)
RANDOM = "random"
_SHOWN_KEYS = 5
# What the readers raise on damaged bytes: torch's unpickler has no error of its own for most of it (found by fuzzing).
_DAMAGE = (
    pickle.UnpicklingError,
    SafetensorError,
    struct.error,
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
)
_LOG = logging.getLogger(__name__)


def find_weights(value: str | None, model: str, by_name: str, *, folder: bool = False) -> Path:
    """The file or folder that `value` names (`package:NAME/path` or a plain path).

    by_name: the sentence that says how weights are had by name, where there is a network.
    Raises EnvironmentLacking, with the three ways to get weights, where there is none; RequestError where a folder
    stands for a file or a file for a folder.
    """
    if value is None:
        raise EnvironmentLacking(f"{model} needs weights and the config names none. {three_ways(by_name)}")
    path = resolve_resource(value)
    if not path.exists():
        raise EnvironmentLacking(f"{model}: no weights at {path} (weights: {value}). {three_ways(by_name)}")
    if path.is_dir() != folder:
        found, expected = ("file", "folder of a checkpoint") if folder else ("folder", "file")
        raise RequestError(f"{model}: weights {path} is a {found}, expected a {expected}")
    return path


def three_ways(by_name: str) -> str:
    return (
        "Three ways to get them:\n"
        f"  1. by name, where there is a network: {by_name}\n"
        "  2. by path: `weights: /path/to/file` (.pth, .pt or .safetensors; a folder for transformers), or\n"
        "     `weights: package:NAME/path/in/package` for a file that an installed package carries\n"
        "  3. to try the pipeline out only: `weights: random` with an explicit `seed: 0`; such features mean nothing"
    )


def read_state(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a .safetensors or torch file, by key and in the file's order, on the CPU.

    Common wrappings ({"state_dict": ...}, {"model": ...}, keys that start with "module.") are taken off.
    Raises RequestError for a file that is damaged or holds anything that is not tensors.
    """
    try:
        if path.suffix == ".safetensors":
            state: object = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except _DAMAGE as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise RequestError(
            f"weights {path} cannot be read: {reason}. Expected .safetensors or a torch file of tensors alone "
            "(it is loaded with weights_only=True); download or save it again"
        ) from error
    return _tensors(state, path)


def _tensors(state: object, path: Path) -> dict[str, torch.Tensor]:
    for wrapping in ("state_dict", "model"):
        if isinstance(state, Mapping) and isinstance(state.get(wrapping), Mapping):
            state = state[wrapping]
    if not isinstance(state, Mapping) or not state:
        raise RequestError(f"weights {path} hold {type(state).__name__}, expected a state dict of named tensors")
    others = [str(key) for key, value in state.items() if not isinstance(value, torch.Tensor)]
    if others:
        raise RequestError(f"weights {path} hold entries that are not tensors: {_some(others)}; expected a state dict")
    prefix = "module." if all(str(key).startswith("module.") for key in state) else ""
    return {str(key).removeprefix(prefix): value for key, value in state.items()}


def fill(model: nn.Module, state: Mapping[str, torch.Tensor], name: str, source: object) -> None:
    """Load `state` into `model`: every key and shape must match.

    Raises RequestError that names the first missing, unexpected and differently shaped keys.
    """
    own = model.state_dict()
    complain_about_keys(
        name,
        source,
        missing=[key for key in own if key not in state],
        unexpected=[key for key in state if key not in own],
        mismatched=[
            f"{key} {tuple(state[key].shape)} instead of {tuple(own[key].shape)}"
            for key in own
            if key in state and state[key].shape != own[key].shape
        ],
    )
    model.load_state_dict(dict(state), strict=True)


def complain_about_keys(
    name: str, source: object, *, missing: Iterable[str], unexpected: Iterable[str], mismatched: Iterable[str]
) -> None:
    """Raises RequestError where any of the three is not empty."""
    groups = {"missing": list(missing), "unexpected": list(unexpected), "of another shape": list(mismatched)}
    found = [f"{len(keys)} {what}: {_some(keys)}" for what, keys in groups.items() if keys]
    if found:
        raise RequestError(
            f"weights {source} are not those of {name}: {'; '.join(found)}. "
            "Name the architecture that they were saved from, or its own weights"
        )


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:_SHOWN_KEYS]) + (", ..." if len(keys) > _SHOWN_KEYS else "")


def note_random_weights(model: str, seed: int | None) -> int:
    """Says loudly that this run's features mean nothing; returns the seed. Raises RequestError where there is none."""
    if seed is None:
        raise RequestError(f"{model}: `weights: random` needs an explicit `seed`, as in `seed: 0`")
    _LOG.warning("%s has RANDOM weights (seed %d): its features mean nothing and are for trying out only", model, seed)
    return seed


def random_model(name: str, seed: int | None, make: Callable[[], ModuleT]) -> ModuleT:
    """What `make` returns, its weights drawn from `seed` alone. Raises RequestError where there is none."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(note_random_weights(name, seed))
        return make()


def file_digest(path: Path) -> str:
    """xxh3-128 of a file's bytes, as hexadecimal. Raises RequestError where it cannot be read."""
    digest = xxhash.xxh3_128()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    except OSError as error:
        raise RequestError(f"weights {path} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def state_digest(state: Mapping[str, torch.Tensor]) -> str:
    """xxh3-128 over keys, types, shapes and values: for weights that a library fetched by name, and for random ones."""
    digest = xxhash.xxh3_128()
    for key in sorted(state):
        tensor = state[key].detach().cpu().contiguous()
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
