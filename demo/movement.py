"""How a thing moves through its scene, and the frames that this makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image

from demo.places import draw_place
from demo.scenes import Scene
from demo.sprites import draw_sprite

SPRITE_SHARE = 0.62  # largest side of a sprite, as a share of the picture's height


@dataclass(frozen=True)
class Pose:
    """Centre as shares of width and height, size as a share of the sprite."""

    x: float
    y: float
    size: float = 1.0


def pose_at(movement: str, seconds: float, share: float) -> Pose:
    """Where the thing is, `seconds` after the scene began, `share` (0 to 1) of the scene gone."""
    return MOVEMENTS[movement](seconds, share)


# Functions of seconds and share, as in `pose_at`; each leaves out what it does not depend on as `_`.
MOVEMENTS: dict[str, Callable[[float, float], Pose]] = {
    "still": lambda _, __: Pose(0.5, 0.6),
    "crossing": lambda _, share: Pose(0.1 + 0.8 * share, 0.6),
    "bouncing": lambda t, _: Pose(0.5, 0.68 - 0.34 * abs(math.sin(2.4 * t))),
    "circling": lambda t, _: Pose(0.5 + 0.24 * math.cos(1.8 * t), 0.53 + 0.2 * math.sin(1.8 * t)),
    "growing": lambda _, share: Pose(0.5, 0.58, 0.45 + 0.95 * share),
    "swaying": lambda t, _: Pose(0.5 + 0.2 * math.sin(2.2 * t), 0.6),
}


def scene_frames(scene: Scene, size: tuple[int, int], fps: int, rng: np.random.Generator) -> Iterator[Image.Image]:
    """The frames of a scene as RGB pictures of `size` (width, height) pixels."""
    background = draw_place(scene.place, size, rng)
    base = round(SPRITE_SHARE * size[1] * rng.uniform(0.85, 1.05))
    shift_x, shift_y = rng.uniform(-0.08, 0.08), rng.uniform(-0.05, 0.05)
    largest = draw_sprite(scene.what, scene.colour, round(base * 1.4))
    sprite = largest.resize((base, base), Image.Resampling.LANCZOS)
    frames = round(scene.seconds * fps)
    for frame in range(frames):
        pose = pose_at(scene.movement, frame / fps, frame / max(1, frames - 1))
        if pose.size != 1.0:
            pixels = round(base * pose.size)
            sprite = largest.resize((pixels, pixels), Image.Resampling.BILINEAR)
        picture = background.copy()
        left = round((pose.x + shift_x) * size[0] - sprite.width / 2)
        top = round((pose.y + shift_y) * size[1] - sprite.height / 2)
        picture.paste(sprite, (left, top), sprite)
        yield picture
