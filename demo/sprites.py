"""The things that demo scenes show: flat, outlined drawings in one main colour, as RGBA pictures.

Each is drawn on a square of 100 x 100 units, enlarged four times and scaled down, which smooths the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PIL import Image, ImageDraw, ImageFilter

RGB = tuple[int, int, int]

PAINT: dict[str, RGB] = {
    "red": (214, 40, 40),
    "yellow": (250, 206, 30),
    "green": (52, 160, 70),
    "blue": (40, 92, 214),
    "purple": (136, 56, 176),
    "white": (246, 246, 242),
}
INK: RGB = (38, 34, 42)
WOOD: RGB = (124, 82, 48)
GLASS: RGB = (190, 224, 240)
UNIT = 4  # pixels of the enlarged drawing per unit


def mix(first: RGB, second: RGB, share: float) -> RGB:
    """`share` of the second colour in the first."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return red, green, blue


class Pen:
    """Shapes in units on one RGBA picture; every filled shape gets the same ink outline."""

    def __init__(self, colour: str) -> None:
        self.image = Image.new("RGBA", (100 * UNIT, 100 * UNIT), (0, 0, 0, 0))
        self._draw = ImageDraw.Draw(self.image)
        self.main = PAINT[colour]
        self.light = mix(self.main, (255, 255, 255), 0.45)
        self.dark = mix(self.main, INK, 0.3)

    def polygon(self, points: Sequence[tuple[float, float]], fill: RGB) -> None:
        scaled = [(x * UNIT, y * UNIT) for x, y in points]
        self._draw.polygon(scaled, fill=fill)
        self._draw.line([*scaled, scaled[0], scaled[1]], fill=INK, width=2 * UNIT, joint="curve")

    def ellipse(self, left: float, top: float, right: float, bottom: float, fill: RGB) -> None:
        self._draw.ellipse(self._box(left, top, right, bottom), fill=fill, outline=INK, width=2 * UNIT)

    def box(self, left: float, top: float, right: float, bottom: float, fill: RGB, radius: float = 0) -> None:
        box = self._box(left, top, right, bottom)
        self._draw.rounded_rectangle(box, radius=radius * UNIT, fill=fill, outline=INK, width=2 * UNIT)

    def slice(
        self, left: float, top: float, right: float, bottom: float, angles: tuple[float, float], fill: RGB
    ) -> None:
        box = self._box(left, top, right, bottom)
        self._draw.pieslice(box, angles[0], angles[1], fill=fill, outline=INK, width=2 * UNIT)

    def arc(
        self, left: float, top: float, right: float, bottom: float, angles: tuple[float, float], colour: RGB
    ) -> None:
        self._draw.arc(self._box(left, top, right, bottom), angles[0], angles[1], fill=colour, width=4 * UNIT)

    def line(self, points: Sequence[tuple[float, float]], colour: RGB, width: float) -> None:
        scaled = [(x * UNIT, y * UNIT) for x, y in points]
        self._draw.line(scaled, fill=colour, width=round(width * UNIT), joint="curve")

    @staticmethod
    def _box(left: float, top: float, right: float, bottom: float) -> tuple[float, float, float, float]:
        return left * UNIT, top * UNIT, right * UNIT, bottom * UNIT


def _ball(pen: Pen) -> None:
    pen.ellipse(10, 10, 90, 90, pen.main)
    paper: RGB = (252, 250, 240) if pen.main != PAINT["white"] else (210, 210, 214)
    for start in (20, 140, 260):
        pen.slice(10, 10, 90, 90, (start, start + 45), paper)
    pen.ellipse(43, 43, 57, 57, pen.light)


def _car(pen: Pen) -> None:
    pen.polygon([(24, 46), (34, 26), (68, 26), (82, 46)], pen.light)
    pen.polygon([(31, 45), (38, 31), (50, 31), (50, 45)], GLASS)
    pen.polygon([(54, 45), (54, 31), (65, 31), (74, 45)], GLASS)
    pen.box(4, 44, 96, 70, pen.main, radius=8)
    pen.box(88, 50, 96, 57, (255, 240, 170), radius=2)
    pen.line([(52, 47), (52, 66)], pen.dark, 1.5)
    for centre in (26, 74):
        pen.ellipse(centre - 13, 57, centre + 13, 83, (46, 46, 52))
        pen.ellipse(centre - 6, 64, centre + 6, 76, (206, 206, 212))


def _house(pen: Pen) -> None:
    pen.box(66, 16, 77, 40, pen.dark)
    pen.box(16, 44, 84, 92, pen.main)
    pen.polygon([(6, 48), (50, 10), (94, 48)], pen.dark)
    pen.box(43, 62, 59, 92, WOOD)
    for left in (22, 65):
        pen.box(left, 56, left + 14, 70, (255, 238, 160))
        pen.line([(left + 7, 57), (left + 7, 69)], INK, 1.5)
        pen.line([(left + 1, 63), (left + 13, 63)], INK, 1.5)


def _fish(pen: Pen) -> None:
    pen.polygon([(28, 50), (4, 28), (10, 50), (4, 72)], pen.dark)
    pen.polygon([(42, 30), (56, 12), (70, 30)], pen.dark)
    pen.polygon([(48, 70), (56, 84), (66, 70)], pen.dark)
    pen.ellipse(20, 24, 96, 76, pen.main)
    for left in (36, 48, 60):
        pen.arc(left - 10, 34, left + 8, 66, (-60, 60), pen.light)
    pen.ellipse(76, 38, 87, 49, (255, 255, 255))
    pen.ellipse(80, 41, 86, 47, INK)


def _tree(pen: Pen) -> None:
    pen.polygon([(43, 96), (46, 58), (54, 58), (57, 96)], WOOD)
    for left, top in ((8, 32), (48, 32), (16, 12), (42, 12), (28, 4), (28, 28)):
        pen.ellipse(left, top, left + 42, top + 38, pen.main)
    pen.ellipse(24, 14, 76, 60, pen.main)
    for x, y in ((28, 26), (52, 16), (66, 36), (40, 44), (20, 46), (74, 52)):
        pen.ellipse(x, y, x + 8, y + 8, pen.light)


def _boat(pen: Pen) -> None:
    pen.line([(50, 8), (50, 72)], WOOD, 4)
    pen.polygon([(53, 10), (53, 62), (88, 62)], pen.light)
    pen.polygon([(47, 18), (47, 62), (16, 62)], pen.main)
    pen.polygon([(4, 68), (96, 68), (80, 92), (20, 92)], pen.main)
    pen.line([(11, 76), (89, 76)], pen.dark, 4)


def _cup(pen: Pen) -> None:
    pen.arc(64, 38, 94, 72, (-110, 110), INK)
    pen.arc(65, 39, 93, 71, (-110, 110), pen.dark)
    pen.polygon([(14, 32), (78, 32), (70, 88), (22, 88)], pen.main)
    pen.ellipse(14, 24, 78, 42, pen.light)
    pen.ellipse(20, 28, 72, 40, (92, 56, 34))
    pen.line([(23, 50), (26, 78)], pen.light, 4)
    for left in (34, 50):
        pen.line([(left, 20), (left + 4, 14), (left, 9), (left + 4, 3)], (236, 236, 240), 2.5)


def _kite(pen: Pen) -> None:
    pen.line([(46, 66), (40, 76), (48, 82), (40, 90), (46, 97)], INK, 2)
    for y in (78, 88):
        pen.polygon([(44, y), (34, y - 5), (34, y + 5)], pen.main)
        pen.polygon([(44, y), (54, y - 5), (54, y + 5)], pen.light)
    for points, fill in (
        ([(50, 4), (18, 30), (50, 30)], pen.main),
        ([(50, 4), (82, 30), (50, 30)], pen.light),
        ([(18, 30), (46, 68), (50, 30)], pen.dark),
        ([(82, 30), (46, 68), (50, 30)], pen.main),
    ):
        pen.polygon(points, fill)


def _umbrella(pen: Pen) -> None:
    pen.line([(50, 40), (50, 84)], INK, 4)
    pen.arc(50, 74, 68, 94, (0, 180), INK)
    pen.line([(50, 6), (50, 14)], INK, 4)
    pen.slice(4, 10, 96, 98, (180, 360), pen.main)
    pen.slice(24, 10, 76, 98, (180, 360), pen.light)
    pen.slice(40, 10, 60, 98, (180, 360), pen.main)


def _rocket(pen: Pen) -> None:
    pen.polygon([(38, 78), (50, 98), (62, 78)], (255, 150, 40))
    pen.polygon([(34, 54), (14, 84), (36, 78)], pen.dark)
    pen.polygon([(66, 54), (86, 84), (64, 78)], pen.dark)
    body = [(50, 3), (60, 14), (67, 30), (69, 50), (64, 80), (36, 80), (31, 50), (33, 30), (40, 14)]
    pen.polygon(body, pen.main)
    pen.polygon([(50, 3), (60, 14), (65, 25), (35, 25), (40, 14)], pen.light)
    pen.ellipse(41, 36, 59, 54, GLASS)
    pen.line([(50, 62), (50, 78)], pen.dark, 4)


DRAWINGS: dict[str, Callable[[Pen], None]] = {
    "ball": _ball,
    "car": _car,
    "house": _house,
    "fish": _fish,
    "tree": _tree,
    "boat": _boat,
    "cup": _cup,
    "kite": _kite,
    "umbrella": _umbrella,
    "rocket": _rocket,
}


def draw_sprite(what: str, colour: str, pixels: int) -> Image.Image:
    """`what` painted in `colour` on a soft shadow, as RGBA of `pixels` x `pixels`."""
    pen = Pen(colour)
    DRAWINGS[what](pen)
    small = pen.image.resize((pixels, pixels), Image.Resampling.LANCZOS)
    alpha = small.getchannel("A").filter(ImageFilter.GaussianBlur(pixels / 40)).point(lambda value: value // 3)
    shadow = Image.new("RGBA", small.size, (*INK, 0))
    canvas = Image.new("RGBA", small.size, (*INK, 0))
    shadow.putalpha(alpha)
    canvas.paste(shadow, (pixels // 40, pixels // 32))
    return Image.alpha_composite(canvas, small)
