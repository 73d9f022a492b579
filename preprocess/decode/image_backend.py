"""Still images, and animated WebP and PNG, as videos: Pillow decodes, EXIF orientation applied."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from preprocess.decode.options import DecodeOptions
from preprocess.decode.video import Frame, Reason, VideoInfo, fail, scaled_size

# A still image is shown as long as ffmpeg shows one: a frame of 25 a second.
STILL_SECONDS = 0.04
EXIF_ORIENTATION = 0x0112
SIDEWAYS = (5, 6, 7, 8)
ANIMATED = {"WEBP", "PNG"}
DAMAGE = (OSError, RuntimeError, SyntaxError, ValueError, EOFError, struct.error)


class ImageSource:
    """The frames of an image file; `info` is final once they have ended. Raises DecodeFailure."""

    def __init__(self, path: Path, options: DecodeOptions, short_side: int | None) -> None:
        self._path, self._short_side = path, short_side
        with _open(path) as image, _failing(path):
            width, height = image.size
            if width * height > options.max_pixels:
                size = f"{width} x {height} pixels"
                fail("too_large", f"{path.name} has {size}, the limit max_pixels is {options.max_pixels}")
            if image.getexif().get(EXIF_ORIENTATION) in SIDEWAYS:
                width, height = height, width
            frames = int(getattr(image, "n_frames", 1)) if image.format in ANIMATED else 1
            if frames > options.max_frames:
                fail("too_large", f"{path.name} has {frames} frames, the limit max_frames is {options.max_frames}")
            self._times = self._read_times(image, frames)
            codec = str(image.format).lower()
        self.info = VideoInfo(
            width=width,
            height=height,
            duration=self._times[-1],
            frames=frames,
            codec=codec,
            container="image",
            backend="pillow",
            start=0.0,
            stream=0,
        )

    def _read_times(self, image: Image.Image, frames: int) -> list[float]:
        """Seconds at which each frame is shown, and the end; animations keep durations beside the pixels."""
        times = [0.0]
        for number in range(frames):
            if frames > 1:
                self._load(image, number)
            shown = float(image.info.get("duration", 0)) / 1000 if frames > 1 else 0.0
            times.append(times[-1] + (shown or STILL_SECONDS))
        return times

    def _load(self, image: Image.Image, number: int) -> Image.Image:
        with _failing(self._path):
            image.seek(number)
            image.load()
            return ImageOps.exif_transpose(image)

    def frames(self) -> Generator[Frame]:
        with _open(self._path) as image:
            for number, time in enumerate(self._times[:-1]):
                picture = self._load(image, number)
                size = scaled_size(picture.width, picture.height, self._short_side)
                yield Frame(number, time, number == 0, _rgb(picture, size))


def _open(path: Path) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            return Image.open(path)
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            fail("too_large", f"{path.name}: {error}")
        except DAMAGE:
            fail("corrupt", f"{path.name} begins like an image but cannot be read as one; get the file again")


@contextmanager
def _failing(path: Path) -> Iterator[None]:
    """Turn what Pillow raises for damaged files into a DecodeFailure."""
    try:
        yield
    except DAMAGE as error:
        reason: Reason = "truncated" if "truncated" in str(error) else "corrupt"
        fail(reason, f"{path.name}: {error}; get the file again")


def _rgb(picture: Image.Image, size: tuple[int, int]) -> NDArray[np.uint8]:
    """(H, W, 3) uint8; transparency is dropped, 16-bit grey is brought to 8 bits by its high byte."""
    if picture.mode.startswith("I"):
        picture = Image.fromarray((np.asarray(picture).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
    picture = picture.convert("RGB")
    if picture.size != size:
        picture = picture.resize(size, Image.Resampling.BICUBIC)
    return np.array(picture, dtype=np.uint8)
