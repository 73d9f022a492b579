"""What a manifest set tells about how it came about: the `report` of its manifest.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from preprocess.captions.clean import CleanResult
from preprocess.captions.filters import Dropped
from preprocess.captions.tokenise import TokenRates
from preprocess.captions.types import CaptionTrack
from preprocess.captions.windows import Alignment

EXAMPLES = 5


@dataclass
class SetReport:
    """What the set's manifest.json tells about how it came about. most: examples of each step of cleaning."""

    cues: int = 0
    skipped: int = 0
    skipped_examples: list[list[str]] = field(default_factory=list)
    cleaned: dict[str, int] = field(default_factory=dict)
    clean_examples: dict[str, list[list[str]]] = field(default_factory=dict)
    filtered: dict[str, int] = field(default_factory=dict)
    filter_examples: dict[str, list[list[str]]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    left_out_examples: list[list[str | float]] = field(default_factory=list)
    videos: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    without_captions: int = 0
    without_windows: int = 0
    rates: TokenRates = field(default_factory=TokenRates)
    near_duplicates: dict[str, Any] = field(default_factory=dict)
    most: int = EXAMPLES

    def add_track(self, video_id: str, track: CaptionTrack, cleaned: CleanResult) -> None:
        self.cues += len(track.cues)
        self.skipped += len(track.skipped)
        unit = "cue" if track.format == "json" else "line"
        for number, why in track.skipped[: EXAMPLES - len(self.skipped_examples)]:
            self.skipped_examples.append([video_id, f"{unit} {number}: {why}"])
        for step, count in cleaned.counts.items():
            self.cleaned[step] = self.cleaned.get(step, 0) + count
        for step, found in cleaned.examples.items():
            examples = self.clean_examples.setdefault(step, [])
            examples += [[video_id, *pair] for pair in found[: self.most - len(examples)]]

    def add_filtered(self, video_id: str, dropped: Dropped) -> None:
        for name, count in dropped.counts.items():
            self.filtered[name] = self.filtered.get(name, 0) + count
            examples = self.filter_examples.setdefault(name, [])
            examples += [[video_id, *pair] for pair in dropped.examples[name][: EXAMPLES - len(examples)]]

    def add_video(self, video_id: str, split: str, captions: int, alignment: Alignment) -> None:
        self.videos[split] = self.videos.get(split, 0) + 1
        self.without_captions += not captions
        self.without_windows += not alignment.windows
        for out in alignment.left_out:
            self.left_out[out.why] = self.left_out.get(out.why, 0) + 1
            if len(self.left_out_examples) < EXAMPLES:
                self.left_out_examples.append([video_id, out.start, out.end, out.why])

    def add_failure(self, reason: str) -> None:
        self.failures[reason] = self.failures.get(reason, 0) + 1

    def as_dict(self, inputs: str) -> dict[str, Any]:
        return {
            "inputs": inputs,
            "videos": dict(sorted(self.videos.items())),
            "videos_without_captions": self.without_captions,
            "videos_without_windows": self.without_windows,
            "failures": dict(sorted(self.failures.items())),
            "cues": self.cues,
            "skipped_cues": {"count": self.skipped, "examples": self.skipped_examples},
            "cleaning": {
                step: {"changed": count, "examples": self.clean_examples.get(step, [])}
                for step, count in self.cleaned.items()
            },
            "filters": {
                name: {"dropped": count, "examples": self.filter_examples[name]}
                for name, count in sorted(self.filtered.items())
            },
            "windows_left_out": {"counts": dict(sorted(self.left_out.items())), "examples": self.left_out_examples},
            "near_duplicates": self.near_duplicates,
            "tokens": self.rates.report(),
        }
