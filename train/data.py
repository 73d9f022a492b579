"""From the store to batches: windows of one split, by number, and a thread that has the next ones ready.

from torch.utils.data import DataLoader
from train.data import WindowDataset

windows = WindowDataset("path/to/store", set="default", split="train")
for batch in DataLoader(windows, batch_size=64, shuffle=True):
    print(batch["video_BTD"].shape, batch["tokens_BKL"].shape)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch.utils.data import Dataset

from shared.config import Config
from shared.errors import DamageFound, RequestError, StoreError
from shared.features import Verify
from shared.manifest_set import ManifestSet
from shared.row_sources import Mapping
from shared.staging import staged
from shared.store import Store, open_store, refuse_inside_store
from train.batch import Batch
from train.model import TokenSpec
from train.order import Selection

T = TypeVar("T")
# Windows that are looked at together when a split is opened: temporary arrays stay small for a split of millions.
_CHECKED_AT_ONCE = 1 << 20


class DataConfig(Config):
    """max_rows: most rows of a window that are read; of longer windows evenly spaced ones, each from the middle of its
    part. max_tokens: captions are cut there, null for the manifest set's own limit. prefetch: batches made ahead.
    verify: rows are checked when first read, each time (`always`, several times slower), or `never`. mapping: `auto`
    maps row files where that is safe, `pread` reads them, for file systems on which mapping fails or is slow; `mmap`
    takes rows from memory directly, twice as fast, but a file that is cut in that very moment kills the process. stage:
    a folder on a disk of this host, to which row files are copied before they are read; null reads them in the store.
    """

    max_rows: int = Field(default=64, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    prefetch: int = Field(default=2, ge=1, le=1024)
    verify: Verify = "first"
    mapping: Mapping = "auto"
    stage: Path | None = None


class WindowData:
    """The windows of one split of one manifest set, with the rows of the stream that it was cut for.

    stream: None for the set's own; any other name is refused, since windows count rows of one stream.
    All batches have the same T (`max_rows`: the longest window, at most what the config says) and L, unless a selection
    names others: so a result never depends on which windows share a batch.
    Raises StoreError, RequestError where the store does not hold what is asked for, DamageFound where it contradicts
    itself.
    """

    def __init__(
        self, store: Store, set_name: str, split: str, *, stream: str | None = None, config: DataConfig | None = None
    ) -> None:
        config = config or DataConfig()
        self._opened = store.path, set_name, split, config
        self.manifest = store.manifest_set(set_name)
        self.split = split
        if stream not in (None, self.manifest.info.stream):
            raise RequestError(
                f"set {set_name!r} was cut for stream {self.manifest.info.stream!r}, not for {stream!r}: leave "
                "`stream` out, or make a set for it with `python -m preprocess manifests CONFIG`"
            )
        self.stream = store.stream(self.manifest.info.stream, verify=config.verify, mapping=config.mapping)
        if config.stage is not None:
            folder = config.stage.expanduser()
            refuse_inside_store(folder, "copies of row files (data.stage=PATH)")
            self.stream.read_rows_in(staged(self.stream, folder))
        self.windows = self.manifest.windows(split)
        self.tokens = token_spec(self.manifest, config.max_tokens)
        self._check(store.path)
        self._number_V = self.stream.index_of(self.manifest.video_ids)
        self._check_rows(store.path)
        self.bag_W = self.windows.bag_W
        self.max_rows = min(config.max_rows, int(self.windows.rows_W.max()))

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def input_dim(self) -> int:
        """Channels of a stored row."""
        return self.stream.row_shape[0]

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the content of every window; goes into checkpoints."""
        info = self.manifest.info
        return {"set": info.fingerprint, "stream": self.stream.fingerprint, "split": self.split, "windows": len(self)}

    def __reduce__(self) -> tuple[object, ...]:
        """By name, in under 4 KiB: another process opens the store itself, so nothing open crosses over."""
        return _open_same, (*self._opened, self.identity)

    def batch(self, selection: Selection) -> Batch:
        """The chosen windows and captions, in CPU memory: (B, T, D) of the stored dtype, (B, K, L).

        A selection's own T must hold every row of its windows.
        """
        window_B = selection.window_B
        video_BTD, mask_BT = self._rows(window_B, selection.rows or self.max_rows)
        caption_BK = self._captions(selection)
        tokens_BKL = self.manifest.tokens(caption_BK, selection.tokens or self.tokens.max_tokens)
        return Batch(
            video_BTD=torch.from_numpy(video_BTD),
            video_mask_BT=torch.from_numpy(mask_BT),
            tokens_BKL=torch.from_numpy(tokens_BKL.astype(np.int64)),
            caption_mask_BK=torch.from_numpy(caption_BK >= 0),
            video_ids_B=torch.from_numpy(self.windows.video_W[window_B].astype(np.int64)),
        )

    def video_names(self, video_ids: list[int]) -> list[str]:
        """The ids that people gave, for the numbers in `Batch.video_ids_B`."""
        return [self.manifest.video_ids[number] for number in video_ids]

    def caption_text(self, window: int) -> str | None:
        """The text of a window's first candidate; None for an empty bag."""
        bag = self.windows.candidates_of(window)
        return self.manifest.caption_texts[int(bag[0])] if len(bag) else None

    def _rows(self, window_B: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """(B, T, D) of the stored dtype, zeros behind a window's rows, and a bool mask (B, T)."""
        video_B, rows_B = self._number_V[self.windows.video_W[window_B]], self.windows.rows_W[window_B]
        if not (rows_B > steps).any():
            return self.stream.gather(video_B, self.windows.first_row_W[window_B], rows_B, steps)
        place_T = np.arange(steps)
        mask_BT = place_T < rows_B[:, None]
        # Middles of T equal parts where the window has more rows than T, all rows one by one where it has not.
        spread_BT = ((2 * place_T + 1) * rows_B[:, None]) // (2 * steps)
        row_BT = np.where(rows_B[:, None] > steps, spread_BT, place_T)
        first_BT = np.where(mask_BT, self.windows.first_row_W[window_B][:, None] + row_BT, 0)
        video_BT = np.broadcast_to(video_B[:, None], mask_BT.shape)
        rows_ND, _ = self.stream.gather(video_BT.ravel(), first_BT.ravel(), mask_BT.ravel().astype(np.int64), 1)
        return rows_ND.reshape(*mask_BT.shape, self.input_dim), mask_BT

    def _captions(self, selection: Selection) -> np.ndarray:
        """int64 (B, K): set-wide caption numbers, -1 where a slot is empty."""
        present_BK = selection.choice_BK >= 0
        place_BK = np.where(present_BK, self.windows.offsets[selection.window_B][:, None] + selection.choice_BK, 0)
        if not present_BK.any():
            return np.full(present_BK.shape, -1, np.int64)
        return np.where(present_BK, self.windows.candidates[place_BK], -1)

    def _check(self, store: Path) -> None:
        if len(self.windows) == 0:
            raise StoreError(
                f"split {self.split!r} of set {self.manifest.name!r} in {store} has no windows; it has splits "
                f"{self.manifest.info.splits}; make the set again with `python -m preprocess manifests CONFIG`"
            )
        if self.stream.entry.kind != "features" or len(self.stream.row_shape) != 1:
            raise RequestError(
                f"set {self.manifest.name!r} belongs to stream {self.stream.name!r} of {self.stream.entry.kind}, "
                f"rows {self.stream.row_shape}; training needs features, one vector a row: make a set for such a stream"
            )

    def _check_rows(self, store: Path) -> None:
        # One more entry, which -1 picks: a video that the stream does not have has no rows.
        held_V = np.append(self.stream.rows_per_video, 0)[self._number_V]
        for start in range(0, len(self.windows), _CHECKED_AT_ONCE):
            part = slice(start, start + _CHECKED_AT_ONCE)
            video_N, rows_N = self.windows.video_W[part], self.windows.rows_W[part]
            fits_N = (rows_N > 0) & (self.windows.first_row_W[part] + rows_N <= held_V[video_N])
            if not fits_N.all():
                window = start + int(np.argmin(fits_N))
                video = self.manifest.video_ids[self.windows.video_W[window]]
                raise DamageFound(
                    f"split {self.split!r} has windows without rows in stream {self.stream.name!r}, the first is "
                    f"window {window} of video {video!r}: run `python -m preprocess verify {store}`"
                )


def _open_same(store: Path, set_name: str, split: str, config: DataConfig, identity: dict[str, Any]) -> WindowData:
    """The same windows in another process. Raises StoreError when they have changed since they were pickled."""
    data = WindowData(open_store(store), set_name, split, config=config)
    if data.identity != identity:
        raise StoreError(
            f"set {set_name!r} of {store} was changed while it was in use: start again with the store as it is"
        )
    return data


class WindowDataset(Dataset[dict[str, torch.Tensor]]):
    """Window by window, for torch's own DataLoader and its default collation; keys as the collated batch has them.

    Each window with its first `candidates` captions; slots that its bag cannot fill are False in `caption_mask_BK`.
    `Batch(**batch)` of what a DataLoader gives is what `TrainStep` takes.
    """

    def __init__(
        self,
        store: Path | str,
        *,
        set: str = "default",
        split: str = "train",
        candidates: int = 5,
        config: DataConfig | None = None,
    ) -> None:
        self.data = WindowData(open_store(store), set, split, config=config)
        self._candidates = candidates

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, window: int) -> dict[str, torch.Tensor]:
        if not 0 <= window < len(self):
            raise IndexError(f"window {window} of {len(self)}")
        batch = self.data.batch(first_captions(np.array([window]), self.data.bag_W, self._candidates))
        return {name: tensor[0] for name, tensor in vars(batch).items()}


def first_captions(window_B: np.ndarray, bag_W: np.ndarray, candidates: int) -> Selection:
    """Given windows, each with the first `candidates` of its bag."""
    choice_BK = np.broadcast_to(np.arange(candidates), (len(window_B), candidates))
    return Selection(window_B, np.where(choice_BK < bag_W[window_B][:, None], choice_BK, -1))


def pinned(batch: Batch) -> Batch:
    """The batch in page-locked memory, from which a GPU copies while the CPU goes on."""
    return Batch(**{name: tensor.pin_memory() for name, tensor in vars(batch).items()})


def token_spec(manifest: ManifestSet, max_tokens: int | None) -> TokenSpec:
    """What the set says of its tokens, with captions cut at `max_tokens`. Raises StoreError where it says less."""
    said = manifest.info.tokenizer
    missing = [key for key in ("vocab_size", "pad_id", "max_length") if not isinstance(said.get(key), int)]
    if missing:
        raise StoreError(
            f"set {manifest.name!r} does not say {', '.join(missing)} of its tokenizer (it says {said}): "
            "make it again with `python -m preprocess manifests CONFIG`"
        )
    longest = int(said["max_length"])
    return TokenSpec(int(said["vocab_size"]), int(said["pad_id"]), min(longest, max_tokens or longest))


@contextmanager
def prefetched(make: Callable[[int], T], start: int, stop: int, ahead: int) -> Iterator[Iterator[T]]:
    """make(start), ..., make(stop - 1) in order, each made by one thread up to `ahead` items before it is taken.

    What `make` raises is raised by the iterator, in its place. The thread ends with the context.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
    numbers = iter(range(start, stop))
    waiting = deque(pool.submit(make, number) for number in islice(numbers, ahead))

    def items() -> Iterator[T]:
        while waiting:
            item = waiting.popleft().result()
            waiting.extend(pool.submit(make, number) for number in islice(numbers, 1))
            yield item

    try:
        yield items()
    finally:
        pool.shutdown(cancel_futures=True)
