"""What stands in a checkpoint: refused as one message where it is whole, but not what a run of this version wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from shared.errors import InputFileError

# What a trained model is read from, and what a run needs beside to go on.
_OF_MODEL: dict[str, type] = {
    "config": dict, "input_dim": int, "model": dict, "order": dict, "stream": dict, "tokenizer": object
}  # fmt: skip
_OF_RUN: dict[str, type] = {
    "optimizer": dict, "step": dict, "random": torch.Tensor, "identity": dict, "validation": dict, "health": dict,
    "negatives": object,
}  # fmt: skip
_SHOWN = 300


def check_content(content: Mapping[str, Any], path: Path, *, resumable: bool = False) -> None:
    """Raise InputFileError where keys are missing or of another kind. resumable: those that a run needs, too."""
    for key, kind in (_OF_MODEL | (_OF_RUN if resumable else {})).items():
        if key not in content:
            raise InputFileError(f"{path} is no checkpoint of `train fit`: it holds no {key!r}; give another file")
        if not isinstance(content[key], kind):
            raise _odd(path, f"its {key!r} is of type {type(content[key]).__name__}, expected {kind.__name__}")
    step = content["order"].get("step")
    if type(step) is not int or step < 0:
        raise _odd(path, f"it was saved after {step!r} steps")


def check_step(content: Mapping[str, Any], path: Path, total: int) -> None:
    """Raise InputFileError where the run has fewer steps than the checkpoint was saved after."""
    step = content["order"]["step"]
    if step > total:
        raise _odd(path, f"it was saved after {step} steps of a run that has {total}")


def check_moments(optimizer: torch.optim.Optimizer, content: Mapping[str, Any]) -> None:
    """Raise ValueError unless what the optimizer remembers of each parameter has its shape: torch asks only as it
    steps. A count of steps has none."""
    shapes = [parameter.shape for group in optimizer.param_groups for parameter in group["params"]]
    for number, of_one in content["state"].items():
        for key, value in of_one.items():
            if isinstance(value, torch.Tensor) and value.ndim and value.shape != shapes[number]:
                raise ValueError(
                    f"{key} of parameter {number} has shape {tuple(value.shape)}, expected {tuple(shapes[number])}"
                )


@contextmanager
def content_fits(path: Path) -> Iterator[None]:
    """Turn what torch and the parts of a run raise of content that is not theirs into InputFileError."""
    try:
        yield
    except (torch.OutOfMemoryError, dist.DistError):
        raise
    except KeyError as error:
        raise _odd(path, f"{error} is missing") from error
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        if "gloo" in str(error):  # of a rank that is gone, see `stopping.lost_rank_fails`
            raise
        raise _odd(path, " ".join(str(error).split())[:_SHOWN]) from error


def _odd(path: Path, fault: str) -> InputFileError:
    return InputFileError(f"{path} holds what no run of this version saves: {fault}; give another file")
