"""Reading a manifest set: videos, windows with their bags of candidate captions, token ids."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TextIO

import numpy as np
from pydantic import ValidationError

from shared.checks import FileChecks
from shared.containers import map_array
from shared.embedding_table import EmbeddingTable
from shared.errors import DamageFound, StoreError
from shared.explain import first_fault
from shared.index_cache import cached_arrays
from shared.manifest_writer import CAPTION_COLUMNS, FAILURE_COLUMNS, VIDEO_COLUMNS, WINDOW_COLUMNS
from shared.schema import EMBEDDINGS, EmbeddingInfo, ManifestInfo
from shared.store_files import MAKE_SET, read_file, stat_file, unreadable
from shared.token_table import TokenTable
from shared.window_table import WindowTable, window_arrays

# The csv module refuses fields over 128 KiB unless told otherwise; the token ids of one long caption are more.
csv.field_size_limit(min(sys.maxsize, 2**31 - 1))


class ManifestSet:
    """One set. Tables are read when first asked for; tokens stay in their mapped files.

    Every file is checked against the root before it is read for the first time: DamageFound names it.
    """

    def __init__(self, store: Path, path: str, files: FileChecks | None = None) -> None:
        """files: what the root says; None for a set whose files were checked already. Raises DamageFound."""
        self.path, self._store, self._folder, self._files = store / path, store, path, files
        self.info = read_manifest_info(self.checked("manifest.json"))

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def splits(self) -> list[str]:
        return sorted(self.info.splits)

    @property
    def pad_id(self) -> int:
        return int(self.info.tokenizer["pad_id"])

    @cached_property
    def videos(self) -> list[dict[str, str]]:
        """videos.csv as it stands."""
        return list(self.rows("videos", VIDEO_COLUMNS))

    @cached_property
    def video_ids(self) -> list[str]:
        # Not through `videos`: a dict a video is what a set of millions of windows would mostly consist of.
        return [row[0] for row in self._cells("videos", VIDEO_COLUMNS)]

    @cached_property
    def video_number(self) -> dict[str, int]:
        return {video_id: number for number, video_id in enumerate(self.video_ids)}

    @cached_property
    def failures(self) -> list[dict[str, str]]:
        return list(self.rows("failures", FAILURE_COLUMNS))

    @cached_property
    def caption_texts(self) -> list[str]:
        return [row["text"] for row in self.rows("captions", CAPTION_COLUMNS)]

    def windows(self, split: str) -> WindowTable:
        """The windows of a split. Raises StoreError when the set has no such split."""
        if split not in self.info.splits:
            raise StoreError(
                f"set {self.name!r} has no windows of split {split!r}; it has {', '.join(self.splits) or 'none'}"
            )
        tables = ("videos", f"windows-{split}")
        files = [f"{self._folder}/{file}" for table in tables for file in self.info.part_files(table)]
        known = self._files.entries(files) if self._files is not None else None
        if known is None:
            return WindowTable(**self._window_arrays(split))
        name = f"windows-{self.name}.{split}"  # a split has no dot: no two sets share a name
        return WindowTable(**cached_arrays(self._store, name, known, lambda: self._window_arrays(split)))

    def _window_arrays(self, split: str) -> dict[str, np.ndarray]:
        try:
            return window_arrays(self._cells(f"windows-{split}", WINDOW_COLUMNS), self.video_number)
        except (KeyError, ValueError) as error:
            raise DamageFound(f"{self.path}/windows-{split}.csv has a row that cannot be read: {error}") from None

    def tokens(
        self, captions_BK: np.ndarray, length: int, out: tuple[np.ndarray, np.ndarray] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """int32 (B, K, L): ids of the given captions, cut at L, padded with `pad_id`; bool (B, K, L): where a token
        stands, which the ids alone do not tell where the pad id is a word's, too.

        captions_BK: set-wide numbers of captions, -1 for an empty slot. out: where to put both; default: new arrays.
        Raises DamageFound.
        """
        shape = (*captions_BK.shape, length)
        ids_BKL, mask_BKL = out or (np.empty(shape, np.int32), np.empty(shape, bool))
        self._token_table.fill(captions_BK, self.pad_id, ids_BKL, mask_BKL)
        return ids_BKL, mask_BKL

    def caption_embeddings(self, captions_BK: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """(B, K, E) of the set's dtype: the stored embeddings of the given captions, zeros for an empty slot.

        captions_BK: set-wide numbers of captions, -1 for an empty slot. out: where to put them; default: a new array.
        Raises StoreError for a set without embeddings, DamageFound.
        """
        info, table = self.embedding_info, self._embedding_table
        out_BKE = np.empty((*captions_BK.shape, info.dim), info.dtype) if out is None else out
        table.fill(captions_BK, out_BKE)
        return out_BKE

    def caption_tokens(self, caption: int) -> np.ndarray:
        """int32: the ids of one caption, unpadded."""
        return self._tokens[self.token_offsets[caption] : self.token_offsets[caption + 1]]

    def token_range(self, first: int, last: int) -> np.ndarray:
        """int32: the ids [first, last) of all that the set has, as `token_offsets` counts them."""
        return self._tokens[first:last]

    def rows(self, table: str, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
        """The rows of a table through all its parts. Raises DamageFound naming a file that cannot be read as one."""
        for row in self._cells(table, columns):
            yield dict(zip(columns, row, strict=True))

    def _cells(self, table: str, columns: tuple[str, ...]) -> Iterator[list[str]]:
        for file in self.info.part_files(table):
            path = self.checked(file)
            try:
                stat_file(path)
                with path.open(encoding="utf-8", newline="") as lines:
                    yield from _checked_rows(path, lines, columns)
            except (UnicodeDecodeError, csv.Error) as error:
                raise DamageFound(f"{path} cannot be read: {error}; run `verify`") from None
            except OSError as error:
                raise unreadable(path, error, MAKE_SET) from None

    @cached_property
    def _token_table(self) -> TokenTable:
        files = self.path / "tokens.npy", self.path / "offsets.npy"
        return TokenTable(self._tokens, self.token_offsets, files)

    @cached_property
    def _tokens(self) -> np.ndarray:
        return map_array(self.checked("tokens.npy"), np.dtype(np.int32), (self.info.tokens,))

    @property
    def embedding_info(self) -> EmbeddingInfo:
        """What the set says of its embeddings. Raises StoreError for one without."""
        if self.info.embeddings is None:
            raise StoreError(
                f"set {self.name!r} has no caption embeddings: make it again with `embeddings` in its config"
            )
        return self.info.embeddings

    @cached_property
    def _embedding_table(self) -> EmbeddingTable:
        return EmbeddingTable(self.checked(EMBEDDINGS), self.embedding_info, self.info.captions)

    @cached_property
    def embeddings(self) -> np.ndarray:
        """(captions, D), float16 or float32, mapped: the embedding of every caption.

        Raises StoreError for a set without embeddings, DamageFound.
        """
        info = self.embedding_info
        return map_array(self.checked(EMBEDDINGS), np.dtype(info.dtype), (self.info.captions, info.dim))

    @cached_property
    def token_offsets(self) -> np.ndarray:
        """int64 (captions + 1,): caption c has tokens[token_offsets[c]:token_offsets[c + 1]]."""
        return map_array(self.checked("offsets.npy"), np.dtype(np.int64), (self.info.captions + 1,))

    def __getstate__(self) -> dict[str, object]:
        files = self._files.below(self._folder) if self._files is not None else None
        return {"path": self.path, "_store": self._store, "_folder": self._folder, "_files": files, "info": self.info}

    def checked(self, file: str) -> Path:
        """The path of one of the set's files, after it was checked. Raises DamageFound."""
        if self._files is not None:
            self._files.require(f"{self._folder}/{file}")
        return self.path / file


def _checked_rows(path: Path, lines: TextIO, columns: tuple[str, ...]) -> Iterator[list[str]]:
    reader = csv.reader(lines, strict=True)
    header = next(reader, [])
    if tuple(header) != columns:
        raise DamageFound(f"{path} has columns {header}, expected {list(columns)}")
    for row in reader:
        if len(row) != len(columns):
            raise DamageFound(f"{path} line {reader.line_num} has {len(row)} fields, expected {len(columns)}")
        yield row


def read_manifest_info(file: Path) -> ManifestInfo:
    """manifest.json of a set. Raises DamageFound, StoreError where it may not be read."""
    try:
        return ManifestInfo.model_validate_json(read_file(file))
    except OSError as error:
        raise unreadable(file, error, MAKE_SET) from None
    except ValidationError as error:
        raise DamageFound(f"{file} is not a manifest: {first_fault(error)}; run `verify`") from None
