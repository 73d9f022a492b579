"""Reads a store with NumPy, h5py and the standard library alone, following shared/FORMAT.md: `plain_reader.py STORE`.

Prints what it found as JSON. It imports nothing of clipmill, and so shows that the specification is enough.
"""

from __future__ import annotations

import base64
import csv
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xxhash


def read_root(store: Path) -> dict[str, Any]:
    data = (store / "store.json").read_bytes()
    lines = data.splitlines(keepends=True)
    (digest_line,) = [line for line in lines if line.startswith(b' "digest": ')]
    root = json.loads(data)
    assert xxhash.xxh3_128_hexdigest(data.replace(digest_line, b"", 1)) == root["digest"]
    assert root["format"] == "clipmill-store"
    assert root["version"] == (2 if any(name.endswith("/embeddings.npy") for name in root["files"]) else 1)
    for name, entry in root["files"].items():
        content = (store / name).read_bytes()
        assert (len(content), xxhash.xxh3_128_hexdigest(content)) == (entry["bytes"], entry["xxh3"]), name
    return root


def read_stream(store: Path, name: str, stream: dict[str, Any]) -> dict[str, Any]:
    videos: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for shard in stream["shards"]:
        base = store / stream["kind"] / name / shard["name"]
        index = json.loads(Path(f"{base}.json").read_bytes())
        rows = read_rows(f"{base}.{index['container']}", index)
        spans = np.load(f"{base}.spans.npy") if index["spans"] else None
        valid = np.load(f"{base}.valid.npy") if index["valid"] else np.zeros(len(rows), np.int32)
        for video in index["videos"]:
            part = slice(video["first_row"], video["first_row"] + video["rows"])
            videos[video["id"]] = {
                "rows": rows[part].tolist(),
                "spans": video_spans(video, spans, part).tolist(),
                "valid": valid[part].tolist(),
                "duration": video["duration"],
                "partial": video["partial"],
            }
        failed |= {record["id"]: record["reason"] for record in index["failed"]}
    return {"videos": videos, "failed": failed}


def read_rows(path: str, index: dict[str, Any]) -> np.ndarray:
    if index["container"] == "npy":
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    else:
        with h5py.File(path) as file:
            rows = file["features"][:]
    assert (rows.dtype, rows.shape) == (index["dtype"], (index["rows"], *index["row_shape"]))
    step, digests = index["checksums"]["block_rows"], index["checksums"]["xxh3_64"]
    for block, first in enumerate(range(0, len(rows), step)):
        digest = xxhash.xxh3_64_hexdigest(rows[first : first + step].tobytes())
        assert digest == digests[16 * block : 16 * block + 16], (path, block)
    return rows


def video_spans(video: dict[str, Any], spans: np.ndarray | None, part: slice) -> np.ndarray:
    if video["step"] is None:
        assert spans is not None
        return spans[part]
    starts = video["start"] + np.arange(video["rows"]) * video["step"]
    return np.stack([starts, np.minimum(starts + video["length"], video["end"])], axis=1)


def read_captions(store: Path, name: str) -> list[dict[str, Any]]:
    index = json.loads((store / "captions" / f"{name}.json").read_bytes())
    lines = gzip.decompress((store / "captions" / f"{name}.jsonl.gz").read_bytes()).split(b"\n")[:-1]
    videos = []
    for record, line in zip(index["videos"], map(json.loads, lines), strict=True):
        assert record["id"] == line["id"]
        tracks = {}
        for said, track in zip(record["tracks"], line["tracks"], strict=True):
            data = track["text"].encode() if "text" in track else base64.b64decode(track["base64"])
            assert (len(data), xxhash.xxh3_128_hexdigest(data)) == (said["bytes"], said["xxh3"])
            tracks[track["name"]] = data.hex()
        videos.append({"id": record["id"], "split": record["split"], "tracks": tracks})
    return videos


def read_set(folder: Path) -> dict[str, Any]:
    info = json.loads((folder / "manifest.json").read_bytes())
    tables: dict[str, list[dict[str, str]]] = {}
    for file in sorted(info["parts"]):
        with (folder / file).open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
        assert len(rows) == info["parts"][file]
        tables.setdefault(file.partition(".")[0], []).extend(rows)
    tokens, offsets = np.load(folder / "tokens.npy"), np.load(folder / "offsets.npy")
    for number, caption in enumerate(tables["captions"]):
        ids = tokens[offsets[number] : offsets[number + 1]]
        assert caption["token_ids"] == " ".join(map(str, ids))
    found = {"tables": tables, "tokens": tokens.tolist(), "offsets": offsets.tolist(), "splits": info["splits"]}
    if "embeddings" in info:
        vectors = np.load(folder / "embeddings.npy", mmap_mode="r", allow_pickle=False)
        assert (vectors.dtype, vectors.shape) == (
            info["embeddings"]["dtype"],
            (info["captions"], info["embeddings"]["dim"]),
        )
        found["embeddings"] = vectors.tolist()
    return found


def read_store(store: Path) -> dict[str, Any]:
    root = read_root(store)
    return {
        "streams": {name: read_stream(store, name, stream) for name, stream in root["streams"].items()},
        "captions": [video for ref in root["captions"] for video in read_captions(store, ref["name"])],
        "sets": {name: read_set(store / entry["path"]) for name, entry in root["sets"].items()},
    }


if __name__ == "__main__":
    print(json.dumps(read_store(Path(sys.argv[1]))))
    assert not [name for name in sys.modules if name.partition(".")[0] == "shared"]
