"""Many short texts as two arrays, which can be mapped: their bytes one after another, and where each begins."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np


def pack_texts(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """uint8 bytes (UTF-8) and int64 offsets (N + 1,): text n is bytes[offsets[n]:offsets[n + 1]].

    Lone surrogates, which ids made of file names can have, survive.
    """
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), offsets


def unpack_texts(text_bytes: np.ndarray, offsets: np.ndarray) -> list[str]:
    """The texts again."""
    whole = text_bytes.tobytes()
    places = offsets.tolist()
    return [whole[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(places)]
