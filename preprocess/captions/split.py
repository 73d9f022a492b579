"""Which split a video belongs to: as its input says, or by a keyed hash of its id. By video, so none is in two."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from shared.config import Config
from shared.errors import InputFileError
from shared.explain import why_unreadable

_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


class SplitConfig(Config):
    """fractions: share of each split for videos whose input gives none. given: whether the input's own splits count.

    key: another key deals the videos anew. exclude: a text file of video ids, one a line (an evaluation set), or null.
    near_duplicates: videos and captions of one split that are nearly the same in another are not looked for (`off`),
    found and told (`report`), or left out of the split `training` as well (`drop`).
    training: name of the training split.
    similar_videos: from which cosine of their mean rows on two videos are nearly the same.
    duplicate_words: captions of fewer words are never duplicates.
    one_word_from: captions of at least so many words are duplicates, too, where one has the other's words in another
    order, or one word more, less or other than it; null: only the same words in the same order.
    """

    fractions: dict[str, float] = Field(default={"train": 0.9, "val": 0.05, "test": 0.05})
    given: bool = True
    key: int = Field(default=0, ge=0, lt=2**64)
    exclude: Path | None = None
    near_duplicates: Literal["off", "report", "drop"] = "off"
    training: str = "train"
    similar_videos: float = Field(default=0.99, gt=0, le=1)
    duplicate_words: int = Field(default=4, ge=1)
    one_word_from: int | None = Field(default=None, ge=2)

    @field_validator("fractions")
    @classmethod
    def _sum_to_one(cls, fractions: dict[str, float]) -> dict[str, float]:
        bad = [name for name in fractions if not is_split_name(name)]
        if bad:
            raise ValueError(f"split name {bad[0]!r} is not of letters, digits, - and _")
        if not all(0 <= share <= 1 for share in fractions.values()) or abs(sum(fractions.values()) - 1) > 1e-9:
            raise ValueError(f"fractions must lie in 0..1 and sum to 1, they sum to {sum(fractions.values())}")
        return fractions


def is_split_name(name: str) -> bool:
    """Split names become file names: letters, digits, `-` and `_`."""
    return _NAME.fullmatch(name) is not None


def split_of(video_id: str, given: str | None, config: SplitConfig) -> str:
    """The video's split: a pure function of its id, what its input says and the config, whatever others there are."""
    if config.given and given:
        return given
    digest = hashlib.blake2b(video_id.encode(), digest_size=8, key=config.key.to_bytes(8, "little")).digest()
    draw = int.from_bytes(digest, "little") / 2**64
    reached = 0.0
    for name, share in sorted(config.fractions.items()):
        reached += share
        if draw < reached:
            return name
    return next(name for name, share in sorted(config.fractions.items(), reverse=True) if share > 0)


def read_exclusions(path: Path | None) -> frozenset[str]:
    """The ids of an exclusion list; blank lines do not count. Raises InputFileError."""
    if path is None:
        return frozenset()
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = why_unreadable(error)
        raise InputFileError(f"exclusion list {path} cannot be read: {why}; expected one video id a line") from None
    return frozenset(line.strip() for line in lines) - {""}
