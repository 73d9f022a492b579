"""Content identities: canonical JSON, and xxh3-128 of bytes and files.

xxh3 is a checksum against accidents (a flipped bit, a changed input), not a signature against an adversary.
"""

from __future__ import annotations

import json
from pathlib import Path

import xxhash

_BLOCK = 1 << 22


def canonical_json(value: object) -> bytes:
    """The one byte form of a JSON value: sorted keys, one space of indent, UTF-8, a closing newline; NaN is refused."""
    text = json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def sealed_json(content: dict[str, object]) -> bytes:
    """Canonical JSON of `content` that carries the digest of the rest under `digest`."""
    return canonical_json(content | {"digest": hash_bytes(canonical_json(content))})


def is_sealed(content: dict[str, object], data: bytes) -> bool:
    """Whether `data`, which was parsed to `content`, is to the bit what `sealed_json` wrote."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    try:
        return sealed_json(rest) == data
    except (ValueError, RecursionError):  # a number beyond float64, a lone surrogate, endless nesting: never written
        return False


def fingerprint(value: object) -> str:
    """32 hex digits that identify a JSON value."""
    return xxhash.xxh3_128_hexdigest(canonical_json(value))


def hash_bytes(data: bytes | memoryview) -> str:
    """xxh3-128 of `data`, 32 hex digits."""
    return xxhash.xxh3_128_hexdigest(data)


def hash_file(path: Path, size: int | None = None) -> str:
    """xxh3-128 of a file's content, or of its first `size` bytes, 32 hex digits, in bounded memory. Raises OSError."""
    digest = xxhash.xxh3_128()
    left = path.stat().st_size if size is None else size
    with path.open("rb") as file:
        while block := file.read(min(_BLOCK, left)):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()
