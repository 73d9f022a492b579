"""What stands in one split and nearly the same in another: videos by their rows, captions by their words.

Videos: the mean of a video's rows, compared by cosine in blocks of a file of scratch. Captions: the same words in the
same order, whatever case and punctuation; on request the same words but for one, in any order. Memory holds eight bytes
for each caption outside of the training split (on request, as many for each of its words), and what is said of the
videos; so the captions of the training split are compared when the set is built.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from preprocess.captions.split import SplitConfig
from preprocess.captions.types import Caption
from preprocess.set_report import EXAMPLES, SetReport
from shared.atomic import disk_full_stops
from shared.captions import KeptCaptions
from shared.containers import NpyRowFile
from shared.errors import Failure

if TYPE_CHECKING:
    from preprocess.prepare import Preparer

_WORD = re.compile(r"\w+")
_BLOCK = 2048
_MARGIN = 1e-3  # what a float32 product may be off by, and much more: what is near the threshold is computed again


@dataclass(frozen=True)
class Match:
    """A video and the first one outside of the training split that it is nearly the same as."""

    video: str
    split: str
    other: str
    other_split: str
    cosine: float


@dataclass
class NearDuplicates:
    """hashes: sorted uint64 of the captions of each split but the training one; one_word: of `one_word_hashes`."""

    config: SplitConfig
    matches: dict[str, Match] = field(default_factory=dict)
    hashes: dict[str, np.ndarray] = field(default_factory=dict)
    one_word: dict[str, np.ndarray] = field(default_factory=dict)
    captions: dict[str, int] = field(default_factory=dict)
    caption_examples: list[list[str]] = field(default_factory=list)

    def failure_of(self, video_id: str) -> Failure | None:
        """Why a video of the training split is dropped, if it is to be."""
        match = self.matches.get(video_id)
        if self.config.near_duplicates != "drop" or match is None or match.split != self.config.training:
            return None
        # The other one is not named here: failures are kept when it is taken down.
        other = f"a video of split {match.other_split}"
        return Failure("near_duplicate", "split", f"its rows are those of {other}: cosine {match.cosine}")

    def without_duplicates(self, video_id: str, split: str, captions: tuple[Caption, ...]) -> tuple[Caption, ...]:
        """Count those captions of a training video that stand in another split; they go where that is asked for."""
        if split != self.config.training:
            return captions
        found = [self._split_with(caption.text) for caption in captions]
        for caption, other in zip(captions, found, strict=True):
            if other is not None:
                self._count(split, other, 1, [[video_id, caption.text, other]])
        if self.config.near_duplicates != "drop":
            return captions
        return tuple(caption for caption, other in zip(captions, found, strict=True) if other is None)

    def compare_held_out(self) -> None:
        """Count captions that stand, in the same words, in two splits of which neither is the training one."""
        for one, other in combinations(sorted(self.hashes), 2):
            shared = len(np.intersect1d(self.hashes[one], self.hashes[other]))
            if shared:
                self._count(one, other, shared, [])

    def report(self) -> dict[str, Any]:
        """For manifest.json: counts by pair of splits, and a few examples of each kind."""
        videos: dict[str, int] = {}
        for match in self.matches.values():
            pair = f"{match.split}, {match.other_split}"
            videos[pair] = videos.get(pair, 0) + 1
        examples = [
            [m.video, m.split, m.other, m.other_split, m.cosine] for m in list(self.matches.values())[:EXAMPLES]
        ]
        return {
            "videos": {"counts": videos, "examples": examples},
            "captions": {"counts": self.captions, "examples": self.caption_examples},
            "dropped": self.config.near_duplicates == "drop",
        }

    def _split_with(self, text: str) -> str | None:
        digest = caption_hash(text, self.config.duplicate_words)
        same = None if digest is None else _first_with(self.hashes, [digest])
        return same or _first_with(self.one_word, one_word_hashes(text, self.config))

    def _count(self, split: str, other: str, count: int, examples: list[list[str]]) -> None:
        pair = f"{split}, {other}"
        self.captions[pair] = self.captions.get(pair, 0) + count
        self.caption_examples += examples[: EXAMPLES - len(self.caption_examples)]


def caption_hash(text: str, least_words: int) -> int | None:
    """xxh3-64 of the words of a caption, case and punctuation apart; None for one of fewer words."""
    words = _WORD.findall(text.casefold())
    return xxhash.xxh3_64_intdigest(" ".join(words).encode()) if len(words) >= least_words else None


def one_word_hashes(text: str, config: SplitConfig) -> list[int]:
    """Of a caption that may differ by a word: the hash of its words in any order, and those with each one left out.

    Two captions have one in common where they have the same words, where one has a word more, and where each has one
    word that the other has not. None at all for a caption that is too short, or where this was not asked for.
    """
    words = _WORD.findall(text.casefold()) if config.one_word_from else []
    if not config.one_word_from or len(words) < max(config.one_word_from, config.duplicate_words):
        return []
    hashes = [xxhash.xxh3_64_intdigest(word.encode()) for word in words]
    whole = sum(hashes)
    return [whole % 2**64, *((whole - one) % 2**64 for one in dict.fromkeys(hashes))]


def _first_with(hashes: dict[str, np.ndarray], digests: list[int]) -> str | None:
    """The first split that has any of the digests."""
    wanted_N = np.array(digests, np.uint64)
    for split, hashes_M in hashes.items():
        at_N = np.searchsorted(hashes_M, wanted_N)
        inside_N = at_N < len(hashes_M)
        if (hashes_M[at_N[inside_N]] == wanted_N[inside_N]).any():
            return split
    return None


def find_near_duplicates(preparer: Preparer, videos: Iterable[KeptCaptions], scratch: Path) -> NearDuplicates:
    """Reads the rows of every usable video, and the captions of those outside of the training split.

    Raises DamageFound for damaged rows, StoppedEarly for a full disk.
    """
    near = NearDuplicates(preparer.section.split)
    same: dict[str, array[int]] = {}
    one_word: dict[str, array[int]] = {}
    ids: list[str] = []
    splits: list[str] = []
    dim = int(np.prod(preparer.stream.row_shape))
    scratch.mkdir(parents=True, exist_ok=True)
    with disk_full_stops(scratch):
        pooled = NpyRowFile(scratch / "pooled", (dim,), np.dtype(np.float32))
        for video, number in _usable(preparer, videos):
            ids.append(video.video_id)
            splits.append(preparer.split_of(video))
            pooled.append(_direction(preparer.stream.read(number))[None])
            if splits[-1] != near.config.training:
                texts = _texts(preparer, video, number)
                found = (caption_hash(text, near.config.duplicate_words) for text in texts)
                same.setdefault(splits[-1], array("Q")).extend(one for one in found if one is not None)
                loose = one_word.setdefault(splits[-1], array("Q"))
                loose.extend(chain.from_iterable(one_word_hashes(text, near.config) for text in texts))
        path = pooled.finish()
    near.hashes, near.one_word = _tables(same), _tables(one_word)
    near.compare_held_out()
    near.matches = {match.video: match for match in _matches(np.load(path, mmap_mode="r"), ids, splits, near.config)}
    path.unlink()
    return near


def _usable(preparer: Preparer, videos: Iterable[KeptCaptions]) -> Iterator[tuple[KeptCaptions, int]]:
    for video in videos:
        number = preparer.number_of(video)
        if not isinstance(number, Failure):
            yield video, number


def _texts(preparer: Preparer, video: KeptCaptions, number: int) -> list[str]:
    captions = preparer.captions_of(video, number, SetReport())
    return [] if isinstance(captions, Failure) else [caption.text for caption in captions]


def _tables(digests: dict[str, array[int]]) -> dict[str, np.ndarray]:
    return {split: np.unique(np.array(found, np.uint64)) for split, found in sorted(digests.items())}


def _direction(rows: np.ndarray) -> np.ndarray:
    """float32 (D,): the mean of a video's rows, of length one; zeros where they cancel out."""
    mean_D = rows.reshape(len(rows), -1).mean(axis=0, dtype=np.float64)
    length = np.sqrt((mean_D * mean_D).sum())
    direction_D: np.ndarray = (mean_D / length if length else mean_D).astype(np.float32)
    return direction_D


def _matches(pooled_VD: np.ndarray, ids: list[str], splits: list[str], config: SplitConfig) -> Iterator[Match]:
    """For each video the first of another split that it is near, each pair outside of training once."""
    names, split_V = np.unique(np.array(splits), return_inverse=True)
    training_V = np.array([split == config.training for split in splits], bool)
    held_H = np.flatnonzero(~training_V)
    for first in range(0, len(ids), _BLOCK):
        own_A = np.arange(first, min(first + _BLOCK, len(ids)))
        found: dict[int, tuple[int, float]] = {}
        for begin in range(0, len(held_H), _BLOCK):
            other_B = held_H[begin : begin + _BLOCK]
            near_AB = pooled_VD[own_A] @ pooled_VD[other_B].T >= config.similar_videos - _MARGIN
            near_AB &= split_V[own_A][:, None] != split_V[other_B][None]
            near_AB &= training_V[own_A][:, None] | (other_B[None] < own_A[:, None])
            for a in np.flatnonzero(near_AB.any(axis=1)):
                own = int(own_A[a])
                first_match = None if own in found else _first_near(pooled_VD, own, other_B[near_AB[a]], config)
                if first_match is not None:
                    found[own] = first_match
        for own, (other, cosine) in sorted(found.items()):
            yield Match(ids[own], str(names[split_V[own]]), ids[other], str(names[split_V[other]]), cosine)


def _first_near(pooled_VD: np.ndarray, own: int, other_M: np.ndarray, config: SplitConfig) -> tuple[int, float] | None:
    """The first of the videos that seem near which is."""
    for other in other_M.tolist():
        cosine = _cosine(pooled_VD[own], pooled_VD[other])
        if cosine >= config.similar_videos:
            return other, cosine
    return None


def _cosine(one_D: np.ndarray, other_D: np.ndarray) -> float:
    """Summed in one order, whatever the number of threads; to six digits, so that equal videos are at 1."""
    return round(float((one_D.astype(np.float64) * other_D).sum()), 6)
