"""How torch is run so that the same clips give the same bytes, and what is said when a device is too small."""

from __future__ import annotations

import os

import torch

from shared.errors import EnvironmentLacking


def configure_torch_for_determinism() -> None:
    """Once per process, before the first `compute`: one thread, float32 that is float32, no choice by stopwatch.

    Measured: the number of threads changes the last bits of convolutions, position in the batch and process do not.
    TF32 would cut the mantissa of float32 convolutions on a GPU to 10 bits; cuDNN's benchmark mode chooses another
    algorithm from run to run.
    """
    os.environ.setdefault(
        "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
    )  # read when cuBLAS starts; its default is not repeatable
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def check_device(device: torch.device) -> None:
    """Raises EnvironmentLacking where torch cannot use `device`."""
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EnvironmentLacking(
            f"device {device} was asked for, but torch {torch.__version__} sees {torch.cuda.device_count()} CUDA "
            "devices; use `device: cpu`, or install a CUDA build of torch and the driver for it"
        )


def device_name(device: torch.device) -> str:
    """The kind of device, for the records: rows are byte-identical on one kind, and close between kinds."""
    if device.type == "cuda" and torch.cuda.is_available():
        return str(torch.cuda.get_device_name(device))
    return f"{device.type} ({torch.backends.cpu.get_cpu_capability()})" if device.type == "cpu" else device.type


class ComputeOutOfMemory(Exception):
    """The device cannot hold the compute shape. The caller halves it and starts the shard again.

    batch_size: clips per call that did not fit. memory_summary: the allocator's own words, many lines.
    stream: the stream whose extractor it was.
    """

    def __init__(self, batch_size: int, memory_summary: str, stream: str = "") -> None:
        super().__init__(f"out of memory with {batch_size} clips per call")
        self.batch_size = batch_size
        self.memory_summary = memory_summary
        self.stream = stream

    def __reduce__(self) -> tuple[type[ComputeOutOfMemory], tuple[int, str, str]]:
        return type(self), (self.batch_size, self.memory_summary, self.stream)


def out_of_memory(error: torch.OutOfMemoryError, batch_size: int, stream: str = "") -> ComputeOutOfMemory:
    """The signal for `error`, with the state of the allocator as it is now."""
    summary = torch.cuda.memory_summary() if torch.cuda.is_available() else ""
    return ComputeOutOfMemory(batch_size, "\n".join(part for part in (str(error), summary) if part), stream)
