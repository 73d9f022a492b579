"""Pictures of windows from a pixel stream of the store, as data URIs."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from shared.features import StreamReader
from shared.store import Store
from train.data import WindowData

PREFERRED = "thumbs"


class Thumbnails:
    """One picture a window: the row nearest to its middle. Use `find_thumbnails`."""

    def __init__(self, stream: StreamReader, data: WindowData) -> None:
        self.stream, self._windows = stream, data.windows
        self._video_V = stream.index_of(data.manifest.video_ids)

    def picture(self, window: int) -> str | None:
        """A `data:image/jpeg` URI; None where the stream has no rows of the window's video."""
        video = int(self._video_V[self._windows.video_W[window]])
        if video < 0:
            return None
        middle = (self._windows.start_W[window] + self._windows.end_W[window]) / 2
        row = int(np.abs(self.stream.spans(video).mean(axis=1) - middle).argmin())
        return data_uri(self.stream.read(video)[row])


def find_thumbnails(store: Store, data: WindowData) -> Thumbnails | str:
    """The pictures of a store, or why there are none: a stream of uint8 (H, W, 3) rows, `thumbs` before any other."""
    suitable = sorted(
        (name != PREFERRED, name)
        for name, entry in store.root.streams.items()
        if entry.kind == "frames" and entry.dtype == "uint8" and len(entry.row_shape) == 3 and entry.row_shape[2] == 3
    )
    if not suitable:
        return (
            f"No pictures: store {store.path} has no stream of single frames. Add one with the extractor `frames` "
            f"(name it {PREFERRED}) to the preprocessing config, and run it again."
        )
    return Thumbnails(store.stream(suitable[0][1]), data)


def data_uri(picture_HWC: np.ndarray) -> str:
    """uint8 (H, W, 3) as a JPEG in a data URI."""
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture_HWC)).save(buffer, "JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
