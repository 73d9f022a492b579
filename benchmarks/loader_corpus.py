"""The windows with tokens of `benchmarks/loader.py`, as a store and as every peer wants them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from stream_writing import write_rows

from shared.manifest_writer import ManifestSetWriter
from shared.store import open_writer

STEPS, DIM, CANDIDATES, TOKENS, SHARDS, VOCABULARY = 10, 512, 5, 32, 16, 30_522


class Corpus:
    """Videos of random lengths from a seed, a window at every tenth row, a caption a window, bags of neighbours."""

    def __init__(self, videos: int) -> None:
        draw = np.random.default_rng(0)
        self.rows_V = np.clip(draw.lognormal(4.5, 0.6, videos), STEPS, 600).astype(np.int64)
        self.windows_V = self.rows_V // STEPS
        self.words_W = draw.integers(4, TOKENS + 1, int(self.windows_V.sum()))
        self.first_W = np.cumsum(self.words_W) - self.words_W
        self.ids_N = draw.integers(1, VOCABULARY, int(self.words_W.sum()), dtype=np.int32)

    def video(self, number: int) -> np.ndarray:
        rows = np.random.default_rng(number + 1).integers(1, 1 << 14, (int(self.rows_V[number]), DIM), np.uint16)
        return rows.view(np.float16)

    def ids(self, caption: int) -> np.ndarray:
        first = self.first_W[caption]
        return self.ids_N[first : first + self.words_W[caption]]

    def bag(self, number: int, window: int) -> list[int]:
        """Captions of a video's window: its own, then its neighbours', as many as there are."""
        count = min(CANDIDATES, int(self.windows_V[number]))
        low = min(max(0, window - CANDIDATES // 2), int(self.windows_V[number]) - count)
        first = int(self.windows_V[:number].sum())
        nearest = sorted(range(low, low + count), key=lambda other: (abs(other - window), other))
        return [first + other for other in nearest]

    def samples(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Windows, video after video: float16 (10, 512), int32 (5, 32) padded with 0."""
        for number in range(len(self.rows_V)):
            rows = self.video(number)
            for window in range(int(self.windows_V[number])):
                tokens = np.zeros((CANDIDATES, TOKENS), np.int32)
                for place, caption in enumerate(self.bag(number, window)):
                    tokens[place, : self.words_W[caption]] = self.ids(caption)
                yield rows[window * STEPS : (window + 1) * STEPS], tokens


def write_store(corpus: Corpus, path: Path) -> None:
    with open_writer(path) as writer:
        write_rows(writer, len(corpus.rows_V), corpus.video, SHARDS)
        manifest = ManifestSetWriter(writer.scratch / "set")
        for video in range(len(corpus.rows_V)):
            _add_video(manifest, corpus, video)
        tokenizer = {"pad_id": 0, "vocab_size": VOCABULARY, "max_length": TOKENS}
        facts = {"name": "default", "stream": "rows", "stream_fingerprint": "ab", "config": {}, "report": {}}
        writer.commit_set(*manifest.finish(tokenizer=tokenizer, **facts))


def _add_video(manifest: ManifestSetWriter, corpus: Corpus, video: int) -> None:
    name, count = f"{video:06d}", int(corpus.windows_V[video])
    captions = corpus.bag(video, 0)[:1] if count else []
    first = captions[0] if captions else 0
    starts = [float(STEPS * window) for window in range(count)]
    ids = [corpus.ids(first + window) for window in range(count)]
    manifest.add_captions(name, starts, [start + STEPS for start in starts], ["a"] * count, ids)
    for window, start in enumerate(starts):
        manifest.add_window("train", name, start, start + STEPS, STEPS * window, STEPS, corpus.bag(video, window))
    manifest.add_video(name, "train", float(corpus.rows_V[video]), int(corpus.rows_V[video]))


def write_plain(corpus: Corpus, folder: Path) -> None:
    """Rows of all videos, the first row of each window, the padded tokens of each window: .npy files to map."""
    np.save(folder / "rows.npy", np.concatenate([corpus.video(number) for number in range(len(corpus.rows_V))]))
    first_V = np.cumsum(corpus.rows_V) - corpus.rows_V
    pairs = zip(first_V.tolist(), corpus.windows_V.tolist(), strict=True)
    np.save(folder / "first.npy", np.concatenate([first + STEPS * np.arange(count) for first, count in pairs]))
    np.save(folder / "tokens.npy", np.stack([tokens for _, tokens in corpus.samples()]))


def write_litdata(corpus: Corpus, folder: Path) -> None:
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(folder / "litdata"), chunk_bytes="64MB")
    for number, (rows, tokens) in enumerate(corpus.samples()):
        writer[number] = {"x": rows, "t": tokens}
    writer.done()
    writer.merge()


def write_mds(corpus: Corpus, folder: Path) -> None:
    from streaming import MDSWriter

    columns = {"x": f"ndarray:float16:{STEPS},{DIM}", "t": f"ndarray:int32:{CANDIDATES},{TOKENS}"}
    with MDSWriter(columns=columns, out=str(folder / "mds")) as writer:
        for rows, tokens in corpus.samples():
            writer.write({"x": rows, "t": tokens})


def write_webdataset(corpus: Corpus, folder: Path) -> None:
    import webdataset

    (folder / "tar").mkdir()
    writers = [webdataset.TarWriter(str(folder / "tar" / f"{shard:02d}.tar")) for shard in range(SHARDS)]
    for number, (rows, tokens) in enumerate(corpus.samples()):
        sample = {"__key__": f"{number:07d}", "x": rows.tobytes(), "t": tokens.tobytes()}
        writers[number % SHARDS].write(sample)
    for writer in writers:
        writer.close()


def write_arrow(corpus: Corpus, folder: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    forms = {"x": datasets.Array2D((STEPS, DIM), "float16"), "t": datasets.Array2D((CANDIDATES, TOKENS), "int32")}
    rows, tokens = zip(*corpus.samples(), strict=True)
    made = datasets.Dataset.from_dict({"x": list(rows), "t": list(tokens)}, features=datasets.Features(forms))
    made.save_to_disk(str(folder / "arrow"))


PEERS = {
    "litdata": write_litdata, "mosaicml-streaming": write_mds, "webdataset": write_webdataset, "datasets": write_arrow,
}  # fmt: skip
