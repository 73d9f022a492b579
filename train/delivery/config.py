"""What a config may say of reading windows and having batches ready."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from shared.config import Config
from shared.features import Verify
from shared.row_sources import Mapping
from shared.schema import Name

# How batches are made, not what is in them: a run may go on with others.
MAKING = ("workers", "prefetch", "verify", "mapping", "stage")


class DataConfig(Config):
    """max_rows: most rows of a window that are read; of longer windows evenly spaced ones, each from the middle of its
    part. max_tokens: captions are cut there, null for the manifest set's own limit.
    also: further feature streams of the same store, null for none. For each row of a window they give theirs of the
    middle of its time; its channels stand behind the first stream's. missing: `zeros` gives rows of zeros where one
    lacks a video; null refuses that.
    workers: processes of each rank that make batches. 0 has a thread of the training process make them, which is enough
    where rows lie in memory (the page cache); several wait for a slow disk at the same time. `train plan` says how many
    suit a machine. prefetch: batches that each of them, or the thread, has made ahead.
    verify: rows are checked when first read, each time (`always`, several times slower), or `never`. mapping: `auto`
    maps row files where the system can, `pread` reads them, for file systems on which mapping fails or is slow; `mmap`
    maps them or says why it cannot. stage: a folder on a disk of this host, to which row files are copied before they
    are read; null reads them in the store.
    """

    max_rows: int = Field(default=64, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    also: tuple[Name, ...] | None = Field(default=None, min_length=1)
    missing: Literal["zeros"] | None = None
    workers: int = Field(default=0, ge=0, le=256)
    prefetch: int = Field(default=2, ge=1, le=1024)
    verify: Verify = "first"
    mapping: Mapping = "auto"
    stage: Path | None = None

    @field_validator("stage", mode="before")
    @classmethod
    def _named(cls, stage: object) -> object:
        if stage == "":
            raise ValueError("an empty path would be the current folder: name a folder, or null to make no copies")
        return stage

    @model_validator(mode="after")
    def _consistent(self) -> DataConfig:
        if self.missing is not None and self.also is None:
            raise ValueError(f"missing={self.missing} without also: name the further streams, or leave missing out")
        return self
