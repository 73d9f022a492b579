"""What a demo video shows: scenes that combine four attributes, drawn from a seed.

Randomness comes from `stream(seed, video, purpose)` only, so that a video depends neither on the order of drawing nor
on how many videos there are.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

OBJECTS = ("ball", "car", "house", "fish", "tree", "boat", "cup", "kite", "umbrella", "rocket")
COLOURS = ("red", "yellow", "green", "blue", "purple", "white")
PLACES = ("beach", "forest", "city", "kitchen", "night", "snow", "desert", "underwater")
MOVEMENTS = ("still", "crossing", "bouncing", "circling", "growing", "swaying")

SCENES_PER_VIDEO = (4, 6)  # least and most
SCENE_SECONDS = (5.0, 10.0)  # least and most


@dataclass(frozen=True)
class Scene:
    """One shot: `what` in a `colour`, with a `movement`, at a `place`, for [start, end) seconds of its video."""

    what: str
    colour: str
    movement: str
    place: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def stream(seed: int, video: int, purpose: str) -> np.random.Generator:
    """An independent random stream for one purpose of one video."""
    return np.random.default_rng([seed, video, zlib.crc32(purpose.encode())])


def draw_scenes(seed: int, video: int, fps: int) -> list[Scene]:
    """The 4 to 6 scenes of a video, back to back, cut at whole frames; no object or place twice in a row."""
    rng = stream(seed, video, "scenes")
    scenes: list[Scene] = []
    start_frame = 0
    for _ in range(int(rng.integers(SCENES_PER_VIDEO[0], SCENES_PER_VIDEO[1] + 1))):
        last = scenes[-1] if scenes else None
        frames = int(rng.integers(int(SCENE_SECONDS[0] * fps), int(SCENE_SECONDS[1] * fps) + 1))
        scenes.append(
            Scene(
                what=_pick(rng, OBJECTS, last.what if last else None),
                colour=_pick(rng, COLOURS),
                movement=_pick(rng, MOVEMENTS),
                place=_pick(rng, PLACES, last.place if last else None),
                start=start_frame / fps,
                end=(start_frame + frames) / fps,
            )
        )
        start_frame += frames
    return scenes


def _pick(rng: np.random.Generator, words: tuple[str, ...], but: str | None = None) -> str:
    allowed = [word for word in words if word != but]
    return allowed[int(rng.integers(len(allowed)))]
