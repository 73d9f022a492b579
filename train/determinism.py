"""The same numbers from the same inputs on a GPU, too, where torch can."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from shared.errors import RequestError

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"


@contextmanager
def deterministic_algorithms(wanted: bool) -> Iterator[None]:
    """Only algorithms that give the same bits each time, while it lasts; enter it before CUDA is used.

    Raises RequestError for an operation of which torch has no such algorithm. See torch's notes on reproducibility: two
    kinds of device, or two versions of torch or CUDA, may still differ.
    """
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    # cuBLAS reads it when it is first used; whoever has set it has a reason.
    os.environ.setdefault(_CUBLAS, ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    try:
        yield
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        raise RequestError(
            f"deterministic=true, but torch cannot: {str(error).splitlines()[0]} Set deterministic=false, or choose "
            "another head, text tower or loss"
        ) from error
    finally:
        torch.use_deterministic_algorithms(before)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
