"""How many bytes of tensors live at once: exact and repeatable, where a process's own peak is neither."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary


class TensorPeak(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context that counts the storages that operations inside it make, forward and backward, until they are freed.

    peak: bytes, the most that lived at once. Storages from before are not counted, nor what an operation takes and
    gives back inside itself. Of a CPU; on a GPU the allocator knows better.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._live = 0
        self._known = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for tensor in _tensors((args, kwargs)):
            self._known[tensor.untyped_storage()] = None
        result = func(*args, **kwargs)
        for tensor in _tensors(result):
            self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage in self._known:
            return
        self._known[storage] = None
        self._live += storage.nbytes()
        self.peak = max(self.peak, self._live)
        weakref.finalize(storage, self._freed, storage.nbytes())

    def _freed(self, count: int) -> None:
        self._live -= count


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
