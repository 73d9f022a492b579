"""A batch out of the ring: as tensors, in page-locked memory, and when its slot may be used again."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch

from shared.errors import EnvironmentLacking
from train.batch import Batch
from train.delivery.arrays import BatchArrays, BatchShape, layout

# torch leaves most of it without types.
_CUDA: Any = torch.cuda
_TENSOR_TYPES = {
    "bool": torch.bool, "float16": torch.float16, "float32": torch.float32, "int32": torch.int32, "int64": torch.int64,
}  # fmt: skip


def on_device(block: torch.Tensor, shape: BatchShape) -> Batch:
    """Views of a tensor of uint8, on any device, that holds the arrays of a batch one behind the other."""
    return Batch(
        **{
            field.name: block[field.start : field.start + field.bytes]
            .view(_TENSOR_TYPES[field.dtype.name])
            .view(field.shape)
            for field in layout(shape).fields
        }
    )


class Slot:
    """Who may still read a slot of the ring."""

    def __init__(self) -> None:
        self._handed_out: list[weakref.ref[np.ndarray]] = []
        self._copied: Any = None

    def hand_out(self, arrays: BatchArrays) -> Batch:
        """Tensors in the slot's own memory. arrays: views that nobody else holds."""
        # A tensor keeps the array alive that it is made of, and so does every view of it, since they share a storage.
        # (A view of an array would not do: NumPy has it keep whatever owns the memory.)
        self._handed_out = [weakref.ref(array) for array in arrays.present.values()]
        return Batch(**{name: torch.from_numpy(array) for name, array in arrays.present.items()})

    def in_use(self) -> bool:
        """Whether a tensor of the batch that was handed out is alive."""
        return any(array() is not None for array in self._handed_out)

    def copying(self, device: torch.device) -> None:
        """A copy to a GPU has been asked for on its current stream."""
        self._copied = _CUDA.Event()
        self._copied.record(_CUDA.current_stream(device))

    def copied(self, *, wait: bool) -> bool:
        """Whether that copy is complete; wait: for it."""
        if self._copied is not None and wait:
            self._copied.synchronize()
        return self._copied is None or bool(self._copied.query())


class PageLock:
    """Memory from which a GPU copies while the CPU goes on."""

    def __init__(self, memory: np.ndarray) -> None:
        """Raises EnvironmentLacking where the system locks no more pages."""
        self._memory = memory
        runtime = _CUDA.cudart()
        result = runtime.cudaHostRegister(memory.ctypes.data, memory.nbytes, 0)
        if result != runtime.cudaError.success:
            raise EnvironmentLacking(
                f"{memory.nbytes:,} bytes of memory cannot be page-locked for the GPU "
                f"({runtime.cudaGetErrorString(result)}); lower data.prefetch, data.workers or batch_size"
            )

    def release(self) -> None:
        """Nothing copies from it any more."""
        _CUDA.cudart().cudaHostUnregister(self._memory.ctypes.data)
