"""Where demo scenes happen: textured backgrounds, different in detail every time, as RGB pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from demo.sprites import RGB, mix

ENLARGE = 2  # drawn twice as large and scaled down, which smooths the edges


@dataclass(frozen=True)
class Canvas:
    """A picture in progress; coordinates are shares of its width and height."""

    image: Image.Image
    rng: np.random.Generator

    def fade(self, top: float, bottom: float, upper: RGB, lower: RGB) -> None:
        """A vertical gradient between two heights, over the full width."""
        first, last = round(top * self.image.height), round(bottom * self.image.height)
        share_N = np.linspace(0.0, 1.0, last - first)[:, None]
        rows_N3 = np.array(upper) + share_N * (np.array(lower) - np.array(upper))
        band = Image.fromarray(rows_N3.round().astype(np.uint8)[:, None, :])
        self.image.paste(band.resize((self.image.width, last - first)), (0, first))

    def grain(self, top: float, bottom: float, cells: tuple[int, int], depth: float) -> None:
        """Cloudy brightness noise of (across, down) cells over the full width between two heights."""
        first, last = round(top * self.image.height), round(bottom * self.image.height)
        box = (0, first, self.image.width, last)
        coarse = self.rng.integers(0, 256, (cells[1], cells[0]), dtype=np.uint8)
        noise = Image.fromarray(coarse).resize((self.image.width, last - first), Image.Resampling.BICUBIC)
        factor_HW = 1.0 + depth * (np.asarray(noise, np.float32)[:, :, None] / 127.5 - 1.0)
        pixels_HW3 = np.asarray(self.image.crop(box), np.float32) * factor_HW
        self.image.paste(Image.fromarray(pixels_HW3.clip(0, 255).astype(np.uint8)), box)

    def polygon(self, points: list[tuple[float, float]], fill: RGB) -> None:
        scaled = [(x * self.image.width, y * self.image.height) for x, y in points]
        ImageDraw.Draw(self.image).polygon(scaled, fill=fill)

    def box(self, left: float, top: float, right: float, bottom: float, fill: RGB) -> None:
        self.polygon([(left, top), (right, top), (right, bottom), (left, bottom)], fill)

    def disc(self, x: float, y: float, radius: float, fill: RGB, flat: float = 1.0) -> None:
        """A circle, its radius a share of the height; `flat` below 1 makes it lower than wide."""
        width, height = self.image.size
        across, down = radius * height, radius * height * flat
        box = (x * width - across, y * height - down, x * width + across, y * height + down)
        ImageDraw.Draw(self.image).ellipse(box, fill=fill)

    def hills(self, base: float, height: float, fill: RGB) -> None:
        """A rolling silhouette that fills everything below it."""
        x_N = np.linspace(0.0, 1.0, 65)
        first, second = self.rng.uniform(0, 6.28, 2)
        y_N = base - height * (0.6 * np.sin(x_N * self.rng.uniform(4, 7) + first) + 0.4 * np.sin(x_N * 13 + second))
        self.polygon([(0.0, 1.0), *zip(x_N.tolist(), y_N.tolist(), strict=True), (1.0, 1.0)], fill)

    def among(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))


def _beach(canvas: Canvas) -> None:
    horizon = canvas.among(0.36, 0.44)
    canvas.fade(0, horizon, (112, 186, 240), (206, 236, 250))
    canvas.disc(canvas.among(0.1, 0.9), canvas.among(0.1, 0.2), 0.07, (255, 244, 190))
    canvas.fade(horizon, 0.67, (20, 120, 176), (74, 196, 204))
    canvas.grain(horizon, 0.67, (9, 26), 0.12)
    shore = [(x / 16, 0.64 + 0.02 * float(np.sin(x * 1.3))) for x in range(17)]
    canvas.fade(0.67, 1, (244, 220, 164), (222, 186, 120))
    canvas.polygon([(0, 0.72), *shore, (1, 0.72)], (244, 220, 164))
    canvas.polygon([*shore, *[(x, y + 0.018) for x, y in reversed(shore)]], (250, 252, 250))
    canvas.grain(0.7, 1, (90, 34), 0.07)
    for _ in range(5):
        canvas.disc(canvas.among(0, 1), canvas.among(0.8, 0.98), 0.012, (250, 238, 226), 0.7)


def _forest(canvas: Canvas) -> None:
    canvas.fade(0, 0.76, (160, 204, 150), (92, 146, 92))
    for depth in range(3):
        tone = mix((128, 168, 118), (26, 58, 34), depth / 2)
        for _ in range(9 - depth * 2):
            x, width = canvas.among(-0.05, 1.05), 0.012 + 0.012 * depth
            top = canvas.among(-0.1, 0.2)
            canvas.box(x - width / 2, top, x + width / 2, 0.8, mix(tone, (82, 54, 34), 0.5))
            for layer in range(4):
                half, y = 0.05 + 0.02 * depth + 0.015 * layer, top + 0.13 * layer
                canvas.polygon([(x, y - 0.14), (x - half, y + 0.1), (x + half, y + 0.1)], tone)
    canvas.fade(0.76, 1, (70, 104, 46), (46, 72, 32))
    canvas.grain(0.76, 1, (120, 26), 0.3)
    canvas.grain(0, 0.76, (16, 10), 0.12)


def _city(canvas: Canvas) -> None:
    canvas.fade(0, 0.7, (176, 196, 216), (226, 226, 222))
    x = -0.03
    while x < 1.0:
        width, top = canvas.among(0.11, 0.2), canvas.among(0.04, 0.32)
        brick = mix((150, 110, 94), (126, 132, 144), canvas.among(0, 1))
        canvas.box(x, top, x + width - 0.006, 0.72, brick)
        canvas.box(x, top, x + width - 0.006, top + 0.02, mix(brick, (40, 40, 46), 0.4))
        for row in range(int((0.68 - top) / 0.09)):
            for column in range(int(width / 0.04)):
                lit = canvas.among(0, 1) > 0.7
                left, upper = x + 0.012 + column * 0.04, top + 0.05 + row * 0.09
                canvas.box(left, upper, left + 0.02, upper + 0.045, (252, 226, 150) if lit else (70, 84, 104))
        x += width
    canvas.box(0, 0.7, 1, 0.76, (176, 174, 170))
    canvas.fade(0.76, 1, (88, 88, 94), (66, 66, 72))
    canvas.grain(0.76, 1, (120, 30), 0.1)
    shift = canvas.among(0, 0.2)
    for mark in range(6):
        left = mark * 0.2 - shift
        canvas.polygon([(left, 0.87), (left + 0.1, 0.87), (left + 0.09, 0.895), (left - 0.01, 0.895)], (236, 232, 214))


def _kitchen(canvas: Canvas) -> None:
    wall = mix((240, 228, 204), (206, 226, 220), canvas.among(0, 1))
    canvas.fade(0, 0.68, wall, mix(wall, (120, 110, 100), 0.1))
    for row in range(5):
        for column in range(12):
            left, top = column / 12, 0.34 + row * 0.068
            canvas.box(
                left + 0.003,
                top + 0.004,
                left + 0.08,
                top + 0.064,
                mix(wall, (255, 255, 255), canvas.among(0.2, 0.6)),
            )
    wood = mix((164, 116, 72), (118, 78, 50), canvas.among(0, 1))
    for column in range(5):
        left = column * 0.2
        canvas.box(left + 0.006, 0, left + 0.194, 0.28, wood)
        canvas.box(left + 0.025, 0.03, left + 0.175, 0.25, mix(wood, (255, 230, 190), 0.18))
        canvas.disc(left + 0.16, 0.22, 0.012, (210, 210, 206))
        canvas.box(left + 0.006, 0.78, left + 0.194, 1, wood)
        canvas.box(left + 0.06, 0.82, left + 0.14, 0.84, (210, 210, 206))
    canvas.grain(0, 0.28, (50, 5), 0.06)
    canvas.fade(0.68, 0.78, (232, 230, 226), (184, 180, 176))
    stove = canvas.among(0.05, 0.6)
    canvas.box(stove, 0.655, stove + 0.3, 0.69, (52, 52, 58))
    canvas.box(stove + 0.05, 0.55, stove + 0.17, 0.655, (150, 154, 160))
    canvas.box(stove + 0.03, 0.55, stove + 0.19, 0.565, (96, 98, 104))


def _night(canvas: Canvas) -> None:
    canvas.fade(0, 1, (6, 8, 34), (40, 44, 98))
    canvas.grain(0, 1, (9, 7), 0.3)
    for _ in range(130):
        bright = round(canvas.among(130, 255))
        canvas.disc(
            canvas.among(0, 1),
            canvas.among(0, 0.85),
            canvas.among(0.002, 0.007),
            (bright, bright, min(255, bright + 20)),
        )
    x, y = canvas.among(0.12, 0.88), canvas.among(0.12, 0.26)
    canvas.disc(x, y, 0.1, (246, 240, 208))
    for dx, dy, radius in ((0.02, -0.03, 0.02), (-0.03, 0.02, 0.026), (0.025, 0.04, 0.014)):
        canvas.disc(x + dx, y + dy, radius, (222, 214, 180))
    canvas.hills(0.9, 0.04, (8, 10, 22))


def _snow(canvas: Canvas) -> None:
    canvas.fade(0, 0.66, (170, 190, 212), (226, 234, 242))
    for _ in range(4):
        x, half, top = canvas.among(0, 1), canvas.among(0.16, 0.3), canvas.among(0.16, 0.3)
        canvas.polygon([(x - half, 0.62), (x, top), (x + half, 0.62)], (134, 150, 176))
        tip = 0.4
        left, right, low = x - half * tip, x + half * tip, top + (0.62 - top) * tip
        canvas.polygon(
            [(left, low), (x, top), (right, low), (x + half * 0.1, low - 0.04), (x, low + 0.02)],
            (244, 248, 252),
        )
    canvas.hills(0.6, 0.03, (226, 236, 246))
    canvas.hills(0.76, 0.03, (242, 246, 250))
    canvas.grain(0.6, 1, (40, 30), 0.035)
    for _ in range(90):
        canvas.disc(canvas.among(0, 1), canvas.among(0, 1), canvas.among(0.004, 0.011), (255, 255, 255))


def _desert(canvas: Canvas) -> None:
    canvas.fade(0, 0.66, (250, 176, 96), (254, 226, 170))
    canvas.disc(canvas.among(0.15, 0.85), canvas.among(0.2, 0.36), 0.1, (255, 246, 206))
    for base, tone in ((0.56, (222, 150, 86)), (0.68, (206, 128, 66)), (0.84, (184, 106, 52))):
        canvas.hills(base, 0.05, tone)
    canvas.grain(0.5, 1, (14, 60), 0.08)
    for _ in range(3):
        x, y, size = canvas.among(0.03, 0.97), canvas.among(0.62, 0.86), canvas.among(0.1, 0.18)
        green = (70, 112, 62)
        canvas.box(x - 0.012, y - size, x + 0.012, y, green)
        for side in (-1, 1):
            arm = y - size * 0.55
            canvas.box(min(x, x + side * 0.045), arm, max(x, x + side * 0.045), arm + 0.025, green)
            edge = x + side * 0.045
            canvas.box(edge - 0.008, arm - size * 0.3, edge + 0.008, arm + 0.025, green)


def _underwater(canvas: Canvas) -> None:
    canvas.fade(0, 1, (66, 190, 206), (8, 56, 110))
    for _ in range(5):
        x, lean = canvas.among(0, 1), canvas.among(-0.15, 0.15)
        canvas.polygon([(x, 0), (x + 0.05, 0), (x + lean + 0.14, 0.8), (x + lean, 0.8)], (78, 178, 200))
    canvas.grain(0, 1, (7, 6), 0.14)
    canvas.hills(0.9, 0.025, (178, 164, 122))
    for _ in range(9):
        x, height, sway = canvas.among(0, 1), canvas.among(0.1, 0.3), canvas.among(0, 6)
        right = [(x + 0.012 * float(np.sin(sway + s)), 0.95 - height * s / 7) for s in range(8)]
        canvas.polygon(
            [*right, *[(px - 0.02 * (1 - s / 7), py) for s, (px, py) in reversed(list(enumerate(right)))]],
            (24, 110, 84),
        )
    for _ in range(4):
        x, tone = canvas.among(0, 1), mix((226, 96, 92), (236, 160, 90), canvas.among(0, 1))
        for branch in range(-2, 3):
            canvas.polygon([(x - 0.01, 0.97), (x + 0.01, 0.97), (x + branch * 0.025, canvas.among(0.82, 0.88))], tone)
    for _ in range(16):
        x, y, radius = canvas.among(0, 1), canvas.among(0.05, 0.9), canvas.among(0.006, 0.018)
        canvas.disc(x, y, radius, (196, 236, 242))
        canvas.disc(x, y, radius * 0.65, (96, 190, 208))


DRAWINGS: dict[str, Callable[[Canvas], None]] = {
    "beach": _beach,
    "forest": _forest,
    "city": _city,
    "kitchen": _kitchen,
    "night": _night,
    "snow": _snow,
    "desert": _desert,
    "underwater": _underwater,
}


def draw_place(place: str, size: tuple[int, int], rng: np.random.Generator) -> Image.Image:
    """`place` as an RGB picture of `size` (width, height) pixels, its details drawn from `rng`."""
    large = Image.new("RGB", (size[0] * ENLARGE, size[1] * ENLARGE))
    DRAWINGS[place](Canvas(large, rng))
    return large.reduce(ENLARGE)
