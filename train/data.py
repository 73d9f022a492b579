"""From the store to tensors: windows of one split, by number, for training and for torch's own DataLoader.

from torch.utils.data import DataLoader
from train.data import WindowDataset, dataloader_defaults, whole_batch

windows = WindowDataset("path/to/store", set="default", split="train")
for batch in DataLoader(windows, batch_size=64, shuffle=True, collate_fn=whole_batch, **dataloader_defaults()):
    print(batch["video_BTD"].shape, batch["tokens_BKL"].shape)
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from shared.store import open_store
from train.batch import Batch
from train.delivery.arrays import BatchArrays
from train.delivery.config import DataConfig
from train.delivery.sizing import available_cores, workers_for
from train.delivery.windows import WindowReader, first_captions
from train.order import Selection

__all__ = ["DataConfig", "FetchedWindows", "WindowData", "WindowDataset", "dataloader_defaults", "whole_batch"]

Sample = dict[str, torch.Tensor]


class WindowData(WindowReader):
    """A WindowReader that gives batches of tensors."""

    def batch(self, selection: Selection) -> Batch:
        """The chosen windows and captions, in CPU memory: (B, T, D) of the stored dtype, (B, K, L)."""
        arrays = BatchArrays.empty(self.shape_of(selection))
        self.fill(selection, arrays)
        return Batch(**{name: torch.from_numpy(array) for name, array in arrays.present.items()})

    def video_names(self, video_ids: list[int]) -> list[str]:
        """The ids that people gave, for the numbers in `Batch.video_ids_B`."""
        return [self.manifest.video_ids[number] for number in video_ids]

    def caption_text(self, window: int) -> str | None:
        """The text of a window's first candidate; None for an empty bag."""
        bag = self.windows.candidates_of(window)
        return self.manifest.caption_texts[int(bag[0])] if len(bag) else None


class WindowDataset(Dataset[Sample]):
    """Window by window, for torch's own DataLoader and its default collation; keys as the collated batch has them.

    Each window with its first `candidates` captions; slots that its bag cannot fill are False in `caption_mask_BK`.
    embeddings: whether the captions' stored embeddings come, too, as `caption_BKE`.
    `Batch(**batch)` of what a DataLoader gives is what `TrainStep` takes. With `collate_fn=whole_batch` a batch is read
    in one piece, which is several times as fast as collating its windows.
    """

    def __init__(
        self,
        store: Path | str,
        *,
        set: str = "default",
        split: str = "train",
        candidates: int = 5,
        config: DataConfig | None = None,
        embeddings: bool = False,
    ) -> None:
        self.data = WindowData(open_store(store), set, split, config=config, embeddings=embeddings)
        self._candidates = candidates

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, window: int) -> Sample:
        sample: Sample = self.__getitems__([operator.index(window)])[0]
        return sample

    def __getitems__(self, windows: Sequence[int]) -> FetchedWindows:
        """What a DataLoader fetches for a batch. Raises IndexError for a window that there is not."""
        window_B = np.asarray(windows, np.int64)
        if window_B.min(initial=0) < 0 or window_B.max(initial=-1) >= len(self):
            raise IndexError(f"window {window_B.min()} or {window_B.max()} of {len(self)}")
        return FetchedWindows(self.data.batch(first_captions(window_B, self.data.bag_W, self._candidates)))


class FetchedWindows(Sequence[Sample]):
    """The windows of a batch: a sequence of samples, of which the first axes are one tensor each."""

    def __init__(self, batch: Batch) -> None:
        self.whole: Sample = batch.present

    def __len__(self) -> int:
        return len(self.whole["video_ids_B"])

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        return {name: tensor[place] for name, tensor in self.whole.items()}

    def __iter__(self) -> Iterator[Sample]:
        return (self[number] for number in range(len(self)))


def whole_batch(fetched: FetchedWindows) -> Sample:
    """For DataLoader's `collate_fn`: the batch as it was read, with nothing copied."""
    return fetched.whole


def dataloader_defaults(ranks: int = 1, cores: int | None = None) -> dict[str, Any]:
    """Settings for torch's DataLoader on a host with so many training processes; `train plan` prints the same.

    cores: None for those that this process may run on.
    """
    workers = workers_for(cores or available_cores(), ranks)
    return {"num_workers": workers, "persistent_workers": True, "prefetch_factor": 2}
