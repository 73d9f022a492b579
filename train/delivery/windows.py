"""The windows of one split, as arrays of NumPy: rows, tokens and masks of any of them in one call, no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from shared.errors import DamageFound, RequestError, StoreError
from shared.features import StreamReader
from shared.staging import staged
from shared.store import Store, open_store, refuse_inside_store
from train.delivery.arrays import BatchArrays, BatchShape
from train.delivery.config import DataConfig
from train.delivery.further import FurtherStreams
from train.order import Selection
from train.tokens import token_spec

# Windows that are looked at together when a split is opened: temporary arrays stay small for a split of millions.
_CHECKED_AT_ONCE = 1 << 20

ReaderT = TypeVar("ReaderT", bound="WindowReader")


@dataclass(frozen=True)
class OpenedWindows:
    """By what name windows were opened, and what they were then; pickles in under 4 KiB."""

    store: Path
    set_name: str
    split: str
    config: DataConfig
    embeddings: bool
    identity: dict[str, Any]


class WindowReader:
    """The windows of one split of one manifest set, with the rows of the stream that it was cut for, and behind them in
    the same array those of the streams that `config.also` names.

    max_rows: T, unless a selection says less: the longest window, at most `config.max_rows`. tokens: L and what ids
    mean. Both are the same for all batches, so that a result never depends on which windows share one.
    """

    def __init__(
        self,
        store: Store,
        set_name: str,
        split: str,
        *,
        stream: str | None = None,
        config: DataConfig | None = None,
        embeddings: bool = False,
    ) -> None:
        """stream: None for the set's own; any other name is refused, since windows count rows of one stream.
        embeddings: whether the captions' stored embeddings come with their tokens.

        Raises StoreError, RequestError where the store does not hold what is asked for, DamageFound where it
        contradicts itself.
        """
        config = config or DataConfig()
        self._names = store.path, set_name, split, config, embeddings
        self.manifest = store.manifest_set(set_name)
        self.split = split
        if stream not in (None, self.manifest.info.stream):
            raise RequestError(
                f"set {set_name!r} was cut for stream {self.manifest.info.stream!r}, not for {stream!r}: leave "
                "`stream` out, or make a set for it with `python -m preprocess manifests CONFIG`"
            )
        self.stream = _open_stream(store, self.manifest.info.stream, config)
        self.windows = self.manifest.windows(split)
        self.tokens = token_spec(self.manifest, config.max_tokens, embeddings=embeddings)
        self.embeddings = self.manifest.info.embeddings if embeddings else None
        self._check(store.path)
        self._number_V = self.stream.index_of(self.manifest.video_ids)
        self._check_rows(store.path)
        self.further: FurtherStreams | None = None
        if config.also:
            ids, used_U = self.manifest.video_ids, np.unique(self.windows.video_W)
            self.further = FurtherStreams(
                self.stream, config, ids, used_U, lambda name: _open_stream(store, name, config)
            )
        self.bag_W, self._dtype = self.windows.bag_W, (self.further or self.stream).dtype.name
        self.max_rows = min(config.max_rows, int(self.windows.rows_W.max()))

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def input_dims(self) -> tuple[int, ...]:
        """Channels of a row of each stream, in the order in which they stand in an array."""
        return self.further.dims if self.further else self.stream.row_shape

    @property
    def input_dim(self) -> int:
        """Channels of a row, of all streams."""
        return sum(self.input_dims)

    @property
    def stream_names(self) -> list[str]:
        """In the order of `input_dims`."""
        return [self.stream.name, *(self.further.names if self.further else [])]

    @property
    def rows_described(self) -> str:
        """Channels and names, as in `512 + 768 from streams s3d, clip`."""
        names = self.stream_names
        word = "streams" if len(names) > 1 else "stream"
        return f"{' + '.join(map(str, self.input_dims))} from {word} {', '.join(names)}"

    @property
    def further_kinds(self) -> list[dict[str, Any]]:
        """What made the rows of each further stream, for checkpoints."""
        return self.further.kinds if self.further else []

    @property
    def row_bytes(self) -> int:
        """What is read for one row of a window, of all streams."""
        return self._first_row_bytes + (self.further.row_bytes if self.further else 0)

    def most_bytes(self, rows: int) -> int:
        """Most bytes that so many different rows of the first stream take in files, with what of the others is beside
        them, and all embeddings of captions that are read."""
        found = rows * self._first_row_bytes + (self.further.most_bytes(rows) if self.further else 0)
        if self.embeddings is None:
            return found
        return found + self.manifest.info.captions * self.embeddings.dim * np.dtype(self.embeddings.dtype).itemsize

    @property
    def _first_row_bytes(self) -> int:
        return self.stream.row_shape[0] * self.stream.dtype.itemsize

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the content of every window; goes into checkpoints."""
        info = self.manifest.info
        found: dict[str, Any] = {
            "set": info.fingerprint,
            "stream": self.stream.fingerprint,
            "split": self.split,
            "windows": len(self),
        }
        found |= {"also": self.further.identity} if self.further else {}
        return found | ({"embeddings": self.embedding_kind} if self.embeddings else {})

    @property
    def embedding_kind(self) -> dict[str, Any] | None:
        """What made the embeddings that captions come with, as plain values; None where they come without."""
        return self.embeddings.model_dump(mode="json") if self.embeddings else None

    @property
    def opened(self) -> OpenedWindows:
        """For `reopened` in another process."""
        return OpenedWindows(*self._names, self.identity)

    def __reduce__(self) -> tuple[object, ...]:
        """By name: another process opens the store itself, so nothing open crosses over."""
        return reopened, (self.opened, type(self))

    def shape(self, clips: int, candidates: int, rows: int | None = None, tokens: int | None = None) -> BatchShape:
        """Of a batch of so many clips with so many captions each; rows, tokens: None for all that any window has."""
        longest = tokens or self.tokens.max_tokens
        shape = BatchShape(clips, rows or self.max_rows, self.input_dim, candidates, longest, self._dtype)
        if self.embeddings is None:
            return shape
        return replace(shape, embedding=self.embeddings.dim, embedding_dtype=self.embeddings.dtype)

    def shape_of(self, selection: Selection) -> BatchShape:
        """Of the batch that a selection asks for."""
        clips, candidates = selection.choice_BK.shape
        return self.shape(clips, candidates, selection.rows, selection.tokens)

    def fill(self, selection: Selection, out: BatchArrays) -> None:
        """Put the chosen windows and captions into arrays of the shape that `shape_of` tells.

        Raises IndexError for a window or caption that there is not, DamageFound for rows and tokens that are not what
        was stored.
        """
        window_B = selection.window_B
        if window_B.min(initial=0) < 0 or window_B.max(initial=-1) >= len(self):
            raise IndexError(f"windows {window_B.min()} to {window_B.max()} are asked for, the split has {len(self)}")
        self._fill_rows(window_B, out.video_BTD, out.video_mask_BT)
        caption_BK = self.captions(window_B, selection.choice_BK)
        np.greater_equal(caption_BK, 0, out=out.caption_mask_BK)
        length = out.tokens_BKL.shape[2]
        self.manifest.tokens(caption_BK, length, out=(out.tokens_BKL, out.token_mask_BKL))
        if out.caption_BKE is not None:
            self.manifest.caption_embeddings(caption_BK, out=out.caption_BKE)
        out.video_ids_B[...] = self.windows.video_W[window_B]

    def _fill_rows(self, window_B: np.ndarray, out_BTD: np.ndarray, mask_BT: np.ndarray) -> None:
        """Zeros behind a window's last row; of more rows than T, evenly spaced ones."""
        video_B, rows_B = self._number_V[self.windows.video_W[window_B]], self.windows.rows_W[window_B]
        first_B, steps = self.windows.first_row_W[window_B], mask_BT.shape[1]
        place_T = np.arange(steps)
        np.less(place_T, rows_B[:, None], out=mask_BT)
        if self.further is None and not (rows_B > steps).any():
            self.stream.gather(video_B, first_B, rows_B, steps, out=out_BTD)
            return
        # Middles of T equal parts where the window has more rows than T, all rows one by one where it has not.
        spread_BT = ((2 * place_T + 1) * rows_B[:, None]) // (2 * steps)
        row_BT = first_B[:, None] + np.where(rows_B[:, None] > steps, spread_BT, place_T)
        if self.further is not None:
            self.further.fill(self.windows.video_W[window_B], row_BT, mask_BT, out_BTD)
            return
        at_N = np.flatnonzero(mask_BT)
        video_N = np.repeat(video_B, mask_BT.sum(1))
        self.stream.place(video_N, row_BT.ravel()[at_N], np.ones_like(at_N), out_BTD, at_N)
        out_BTD[~mask_BT] = 0

    def captions(self, window_B: np.ndarray, choice_BK: np.ndarray) -> np.ndarray:
        """int64 (B, K): set-wide numbers of the captions at these places of windows' bags, -1 where a slot is empty.

        Raises IndexError for a place that a bag does not have.
        """
        present_BK = choice_BK >= 0
        if not present_BK.any():
            return np.full(present_BK.shape, -1, np.int64)
        if (choice_BK >= self.bag_W[window_B][:, None]).any():
            raise IndexError("a caption is asked for that its window's bag does not have")
        place_BK = np.where(present_BK, self.windows.offsets[window_B][:, None] + choice_BK, 0)
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


def _open_stream(store: Store, name: str, config: DataConfig) -> StreamReader:
    stream = store.stream(name, verify=config.verify, mapping=config.mapping)
    if config.stage is not None:
        folder = config.stage.expanduser()
        refuse_inside_store(folder, "copies of row files (data.stage=PATH)")
        stream.read_rows_in(staged(stream, folder))
    return stream


def reopened(opened: OpenedWindows, kind: type[ReaderT]) -> ReaderT:
    """The same windows in another process. Raises StoreError when they have changed since."""
    reader = kind(
        open_store(opened.store), opened.set_name, opened.split, config=opened.config, embeddings=opened.embeddings
    )
    if reader.identity != opened.identity:
        raise StoreError(
            f"set {opened.set_name!r} of {opened.store} was changed while it was in use: start again with the store "
            "as it is"
        )
    return reader


def first_captions(window_B: np.ndarray, bag_W: np.ndarray, candidates: int) -> Selection:
    """Given windows, each with the first `candidates` of its bag."""
    choice_BK = np.broadcast_to(np.arange(candidates), (len(window_B), candidates))
    return Selection(window_B, np.where(choice_BK < bag_W[window_B][:, None], choice_BK, -1))
