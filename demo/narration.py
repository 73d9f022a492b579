"""What is said over a demo video, and when: as careless as narration found on the web.

A sentence about a scene comes on time, early or late by up to three seconds, names all of the scene's attributes or
only some, in changing words; between them come remarks that have nothing to do with the picture, and sounds in
brackets. Sentences for training videos and for held-out videos are made from different patterns: only the words for
the attributes are common to both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from demo.scenes import Scene, stream

WORDS: dict[str, tuple[str, ...]] = {
    "ball": ("ball", "round ball", "beach ball"),
    "car": ("car", "little car"),
    "house": ("house", "small house"),
    "fish": ("fish", "big fish"),
    "tree": ("tree", "round tree"),
    "boat": ("boat", "sailing boat"),
    "cup": ("cup", "cup of coffee", "coffee cup"),
    "kite": ("kite", "paper kite"),
    "umbrella": ("umbrella", "open umbrella"),
    "rocket": ("rocket", "space rocket"),
    "red": ("red", "bright red"),
    "yellow": ("yellow", "sunny yellow"),
    "green": ("green", "dark green"),
    "blue": ("blue", "deep blue"),
    "purple": ("purple", "purple"),
    "white": ("white", "plain white"),
    "beach": ("on the beach", "at the beach by the sea"),
    "forest": ("in the forest", "deep in the forest", "in the woods"),
    "city": ("in the city", "in a city street", "in town"),
    "kitchen": ("in the kitchen", "in a tidy kitchen"),
    "night": ("in the night sky", "at night under the stars", "under the moon at night"),
    "snow": ("in the snow", "on a field of snow", "in the snowy mountains"),
    "desert": ("in the desert", "in the hot desert"),
    "underwater": ("under water", "deep under water"),
    "still": ("stands still", "does not move"),
    "crossing": ("moves from left to right", "crosses the picture"),
    "bouncing": ("bounces up and down", "keeps bouncing"),
    "circling": ("goes round in circles", "flies in a circle"),
    "growing": ("gets bigger and bigger", "keeps growing"),
    "swaying": ("sways from side to side", "keeps swaying"),
}

FULL: dict[str, tuple[str, ...]] = {
    "train": (
        "here you can see a {colour} {what} that {movement} {place}",
        "look how the {colour} {what} {movement} {place}",
        "{place} there is a {what} which is {colour} and it {movement}",
        "so this {what} is {colour} and {movement} {place}",
        "now a {colour} {what} {movement} right {place}",
    ),
    "val": (
        "somewhere {place} a {colour} {what} {movement}",
        "we watch a {what} painted {colour} as it {movement} {place}",
        "what {movement} {place} is this {colour} {what}",
        "and then {place} one {colour} {what} {movement}",
    ),
}
PARTIAL: dict[str, tuple[str, ...]] = {
    "train": (
        "we have a {colour} {what} here",
        "that {what} {movement} {place}",
        "I really like this {colour} {what} {place}",
        "see the {what} {place}",
    ),
    "val": (
        "another {what} {place}",
        "my favourite is the {colour} {what}",
        "who left a {colour} {what} {place}",
    ),
}
OFF_TOPIC = (
    "don't forget to subscribe",
    "I had coffee this morning",
    "thanks to everyone who left a comment last week",
    "sorry about the noise my neighbours are drilling again",
    "and hit the bell so you never miss an upload",
    "my sister says hello by the way",
    "before we go on a word from our sponsor",
    "it has been raining since Tuesday",
)
SOUNDS = ("[Music]", "[Applause]", "[Laughter]")

WORDS_PER_SECOND = 2.8
SHARE_PARTIAL, SHARE_OFF_TOPIC, SHARE_SOUND = 0.25, 0.15, 0.08
SHARE_EARLY, SHARE_LATE = 0.25, 0.25
MOST_SECONDS_OFF = 3.0
Split = Literal["train", "val"]


@dataclass(frozen=True)
class Cue:
    """A spoken line: [start, end) in seconds of the video, end above start."""

    start: float
    end: float
    text: str


def narrate(scenes: list[Scene], seed: int, video: int, split: Split) -> list[Cue]:
    """Cues in order of time without overlap, all of them inside the video."""
    rng = stream(seed, video, "narration")
    spoken: list[tuple[float, str]] = []
    for scene in scenes:
        if rng.random() < SHARE_SOUND:
            spoken.append((scene.start, _one(rng, SOUNDS)))
        spoken.append((scene.start + _shift(rng), _sentence(scene, rng, split)))
        if rng.random() < SHARE_OFF_TOPIC:
            spoken.append((scene.end - 2.0, _one(rng, OFF_TOPIC)))
    return _lay_out(spoken, scenes[-1].end)


def _sentence(scene: Scene, rng: np.random.Generator, split: Split) -> str:
    patterns = PARTIAL if rng.random() < SHARE_PARTIAL else FULL
    return _one(rng, patterns[split]).format(
        what=_one(rng, WORDS[scene.what]),
        colour=_one(rng, WORDS[scene.colour]),
        movement=_one(rng, WORDS[scene.movement]),
        place=_one(rng, WORDS[scene.place]),
    )


def _shift(rng: np.random.Generator) -> float:
    """Seconds between the start of a scene and the start of what is said about it."""
    kind, size = rng.random(), float(rng.uniform(1.0, MOST_SECONDS_OFF))
    if kind < SHARE_EARLY:
        return -size
    return size if kind < SHARE_EARLY + SHARE_LATE else float(rng.uniform(0.0, 0.6))


def _lay_out(spoken: list[tuple[float, str]], video_end: float) -> list[Cue]:
    """Give each line the time it takes; a line waits for the one before it, and what no longer fits is not said."""
    cues: list[Cue] = []
    free = 0.0
    for wanted, text in spoken:
        start = round(max(wanted, free), 3)
        end = round(start + max(0.8, len(text.split()) / WORDS_PER_SECOND), 3)
        if end > video_end:
            break
        cues.append(Cue(start, end, text))
        free = end + 0.05
    return cues


def _one(rng: np.random.Generator, choices: tuple[str, ...]) -> str:
    return choices[int(rng.integers(len(choices)))]
