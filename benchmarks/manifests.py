"""How fast captions become a manifest set, and with how much memory: `python benchmarks/manifests.py [--quick]`.

A store is drawn, with captions of three kinds in equal numbers: `plain` (CSV as HowTo100M has it), `marked` (WebVTT and
SRT with tags, entities, sounds, speakers) and `rolling` (automatic captions: each line shown twice, each word timed).

stages     clean, align and tokenise, from parsed cues on
whole set  all of `preprocess manifests` after loading the tokenizer: unpack, read, the stages, write, fsync, commit
tokenizer  the Hugging Face tokenizer alone, in the same batches, on the texts that come out; the stages ask it only for
           words that they have not met before (`preprocess/captions/word_memory.py`)
loop       what a script does: webvtt-py, tags cut by a regular expression, the five nearest captions sorted for each, a
           tokenizer call and a CSV row for each; it unrolls nothing, so that its rolling captions are wrong

One thread, one core, CPU seconds of a process of its own, medians of the rounds, in which all take turns. The figure is
the tokenizer's time over that of the stages, all kinds together. Memory is the largest resident set of a process that
builds a set of few captions, and of many. The last line is JSON; met says that both goals are.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import numpy as np
import webvtt
from tokenizers import Tokenizer

from preprocess.captions.clean import CleanConfig, clean
from preprocess.captions.read import read_track
from preprocess.captions.tokenise import TokenizerConfig, load_tokenizer
from preprocess.captions.types import CaptionTrack
from preprocess.captions.windows import WindowConfig, align
from preprocess.manifests import SetConfig, build_set, settled_heap
from shared.captions import KeptCaptions, KeptTrack, read_captions, write_caption_shard
from shared.resources import resolve_resource
from shared.schema import Source, StreamEntry
from shared.shard_writer import ShardWriter
from shared.store import open_store, open_writer

GOAL = 0.5
FLAT = 1.1  # largest resident set with many captions over that with few
BATCH = 4096
WARM = 5  # videos that go through before the clock starts: what is made on first use is no cost of a caption
TAG = re.compile(r"<[^>]*>")
KINDS = ("plain", "marked", "rolling")
CAPTIONS = 100  # of a video: HowTo100M has 113
SHARD_VIDEOS = 1024
SECONDS = 3.0  # from one caption to the next
Measured = tuple[int, int, float]  # captions that came out, cues of the files, CPU seconds


def vocabulary() -> list[str]:
    names = (resolve_resource(TokenizerConfig().name) / "vocab.txt").read_text(encoding="utf-8").split()
    return [word for word in names if word.isascii() and word.isalpha() and len(word) > 1][:8000]


def clock(seconds: float, comma: str = ".") -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{comma}{thousandths:03d}"


def sentences(words: list[str], random: np.random.RandomState) -> list[list[str]]:
    """Four to fourteen words each, frequent ones more often, as Zipf says."""
    lengths = random.randint(4, 15, CAPTIONS)
    picks = iter(np.minimum(random.zipf(1.3, int(lengths.sum())) - 1, len(words) - 1).tolist())
    return [[words[next(picks)] for _ in range(length)] for length in lengths]


def plain_file(lines: list[list[str]]) -> tuple[str, str]:
    table = StringIO()
    writer = csv.writer(table)
    writer.writerow(["start", "end", "text"])
    writer.writerows([k * SECONDS, k * SECONDS + 2.9, " ".join(line)] for k, line in enumerate(lines))
    return "csv", table.getvalue()


def marked_file(lines: list[list[str]], number: int) -> tuple[str, str]:
    comma, form = (",", "srt") if number % 2 else (".", "vtt")
    parts = [] if number % 2 else ["WEBVTT\n\n"]
    for k, line in enumerate(lines):
        text = " ".join(line)
        text = (
            f"<i>{text}</i>", f"&gt;&gt; {text} &amp; more", f"[music] {text}", f"JOHN: {text}",
            f"{text}\nand a second line", f"{text}, don’t", f"<v Ann>{text}.", text,
        )[k % 8]  # fmt: skip
        parts.append(f"{k + 1}\n{clock(k * SECONDS, comma)} --> {clock(k * SECONDS + 3.2, comma)}\n{text}\n\n")
    return form, "".join(parts)


def rolling_file(lines: list[list[str]]) -> tuple[str, str]:
    parts = ["WEBVTT\nKind: captions\nLanguage: en\n\n"]
    above = " "
    for k, line in enumerate(lines):
        start = k * SECONDS
        step = 2.8 / len(line)
        timed = line[0] + "".join(f"<{clock(start + n * step)}><c> {word}</c>" for n, word in enumerate(line) if n)
        text, place = " ".join(line), "align:start position:0%"
        parts.append(f"{clock(start)} --> {clock(start + 2.99)} {place}\n{above}\n{timed}\n\n")
        parts.append(f"{clock(start + 2.99)} --> {clock(start + 3)} {place}\n{text}\n \n\n")
        above = text
    return "vtt", "".join(parts)


def draw(kind: str, number: int, words: list[str]) -> KeptCaptions:
    lines = sentences(words, np.random.RandomState(number))
    makers: dict[str, Callable[[], tuple[str, str]]] = {
        "plain": lambda: plain_file(lines),
        "marked": lambda: marked_file(lines, number),
        "rolling": lambda: rolling_file(lines),
    }
    form, text = makers[kind]()
    track = KeptTrack(f"{number}.{form}", text.encode())
    return KeptCaptions(f"{kind}{number:07d}", None, {}, (track,))


def draw_store(path: Path, kinds: tuple[str, ...], captions: int) -> None:
    """A store with a stream of one row a second, and captions kept as found; no video has ever been there."""
    words, seconds = vocabulary(), int(CAPTIONS * SECONDS)
    spans = np.stack([np.arange(seconds), np.arange(seconds) + 1.0], axis=1)
    rows, valid, source = np.ones((seconds, 1), np.float16), np.zeros(seconds, np.int32), Source(bytes=1, xxh3="ab")
    entry = StreamEntry(
        kind="features", fingerprint="ab", identity={}, container="npy", dtype="float16", row_shape=(1,)
    )
    with open_writer(path) as writer:
        shards, refs, files = [], [], []
        for number, first in enumerate(range(0, captions // CAPTIONS, SHARD_VIDEOS)):
            last = min(first + SHARD_VIDEOS, captions // CAPTIONS)
            videos = [draw(kinds[video % len(kinds)], video, words) for video in range(first, last)]
            with ShardWriter(writer.scratch, "default", entry, f"{number:02x}", number) as shard:
                for video in videos:
                    shard.append(rows)
                    shard.end_video(
                        video.video_id, source=source, duration=float(seconds), decoder="none", partial=False,
                        spans=spans, valid=valid,
                    )  # fmt: skip
                made = shard.finish()
            kept = write_caption_shard(writer.scratch, number, videos)
            shards.append(made.ref)
            refs.append(kept.ref)
            files += [*made.files, *kept.files]
        streams = {"default": entry.model_copy(update={"shards": tuple(shards)})}
        writer.commit(files, streams=streams, captions=tuple(refs))


def stages(store: Path) -> Measured:
    opened = open_store(store)
    stream, tokenizer = opened.stream("default"), load_tokenizer(TokenizerConfig())
    kept = [(video.video_id, read_track(video.tracks[0].data, video.tracks[0].name)) for video in read_captions(opened)]
    tracks = [(name, track) for name, track in kept if isinstance(track, CaptionTrack)]

    def run(videos: list[tuple[str, CaptionTrack]]) -> int:
        texts: list[str] = []
        total = 0
        for video_id, track in videos:
            number = int(stream.index_of([video_id])[0])
            duration = float(stream.durations[number])
            captions = clean(track.cues, duration, CleanConfig(), words=False).captions
            align(captions, stream.spans(number), duration, WindowConfig())
            texts += [caption.text for caption in captions]
            if len(texts) >= BATCH:
                total += len(tokenizer.encode(texts).ids)
                texts = []
        return total + len(tokenizer.encode(texts).ids)

    run(tracks[:WARM])
    with settled_heap():
        before = time.process_time()
        total = run(tracks)
        seconds = time.process_time() - before
    return total, sum(len(track.cues) for _, track in tracks), seconds


def whole_set(store: Path) -> Measured:
    with open_writer(store) as writer:
        build_set(writer, f"warm{os.getpid()}", SetConfig())
        before = time.process_time()
        load_tokenizer(TokenizerConfig())
        loaded = time.process_time()
        built = build_set(writer, f"set{os.getpid()}", SetConfig())
    seconds = time.process_time() - loaded - (loaded - before)
    return built.info.captions, int(built.info.report["cues"]), seconds


def tokenizer_alone(store: Path) -> Measured:
    made = open_store(store).manifest_set("default")
    texts, tokenizer = made.caption_texts, plain_tokenizer()
    tokenizer.encode_batch(texts[: WARM * CAPTIONS])
    before = time.process_time()
    for first in range(0, len(texts), BATCH):
        _ = [encoding.ids for encoding in tokenizer.encode_batch(texts[first : first + BATCH])]
    return len(texts), int(made.info.report["cues"]), time.process_time() - before


def plain_loop(store: Path) -> Measured:
    tokenizer, total, videos = plain_tokenizer(), 0, list(read_captions(open_store(store)))
    before = time.process_time()
    with tempfile.TemporaryFile("w", newline="") as table:
        writer = csv.writer(table)
        for video in videos:
            track = video.tracks[0]
            cues = list(plain_cues(track.name, track.data.decode()))
            centre_of = {number: (start + end) / 2 for number, (start, end, _) in enumerate(cues)}
            for number, (start, end, text) in enumerate(cues):
                nearest = sorted(centre_of, key=lambda other, here=centre_of[number]: abs(centre_of[other] - here))[:5]
                grown = max(0.0, 5 - (end - start)) / 2
                rows = round(max(0.0, start - grown)), round(end + grown)
                writer.writerow([video.video_id, start, end, text, tokenizer.encode(text).ids, *rows, nearest])
            total += len(cues)
    return total, total, time.process_time() - before


def plain_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(resolve_resource(TokenizerConfig().name) / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(TokenizerConfig().max_length)
    return tokenizer


def plain_cues(name: str, text: str) -> Iterator[tuple[float, float, str]]:
    form = name.rpartition(".")[2]
    if form == "csv":
        for row in csv.DictReader(StringIO(text)):
            yield float(row["start"]), float(row["end"]), row["text"]
        return
    for cue in webvtt.from_buffer(StringIO(text), form).captions:
        yield cue.start_in_seconds, cue.end_in_seconds, " ".join(TAG.sub("", cue.text).split())


WORKERS = {"stages": stages, "whole set": whole_set, "tokenizer": tokenizer_alone, "loop": plain_loop}


def work(name: str, store: Path) -> None:
    """In a process of its own: print captions, cues, CPU seconds, and the largest resident set in MiB."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    captions, cues, seconds = WORKERS[name](store)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"captions": captions, "cues": cues, "seconds": seconds, "peak_mib": peak}))


def measure(name: str, store: Path) -> dict[str, float]:
    one = {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment = {**os.environ, **one, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    command = [sys.executable, __file__, "--work", name, "--store", str(store)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def speeds(folder: Path, captions: int, rounds: int) -> dict[str, dict[str, float]]:
    """Kind -> worker -> CPU microseconds for each caption that comes out of ours."""
    found: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        store = folder / kind
        draw_store(store, (kind,), captions)
        with open_writer(store) as writer:
            build_set(writer, "default", SetConfig())
        times: dict[str, list[dict[str, float]]] = {name: [] for name in WORKERS}
        for _ in range(rounds):
            for name in WORKERS:
                times[name].append(measure(name, store))
        middle = {name: statistics.median(run["seconds"] for run in runs) for name, runs in times.items()}
        counted = times["stages"][0]["captions"]
        found[kind] = {name: 1e6 * seconds / counted for name, seconds in middle.items()}
        for name, microseconds in found[kind].items():
            print(f"{kind:8} {name:10} {microseconds:7.1f} us a caption {1e6 / microseconds:9.0f} captions a second")
    return found


def peaks(folder: Path, sizes: tuple[int, int]) -> list[float]:
    found = []
    for captions in sizes:
        store = folder / f"peak{captions}"
        draw_store(store, KINDS, captions)
        found.append(measure("whole set", store)["peak_mib"])
        print(f"memory   {captions:9} captions {found[-1]:8.0f} MiB")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer captions and one round, for a first look")
    parser.add_argument("--work", choices=list(WORKERS), help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work, arguments.store)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = speeds(folder, 5_000 if arguments.quick else 20_000, 1 if arguments.quick else 3)
        few, many = peaks(folder, (10_000, 100_000 if arguments.quick else 1_000_000))
    whole = {worker: sum(found[kind][worker] for kind in KINDS) / len(KINDS) for worker in WORKERS}
    ratio, growth = whole["tokenizer"] / whole["stages"], many / few
    for kind in KINDS:
        print(f"{kind:8} tokenizer over stages {found[kind]['tokenizer'] / found[kind]['stages']:.2f}")
    print(f"all      tokenizer over stages {ratio:.2f}, loop over whole set {whole['loop'] / whole['whole set']:.2f}")
    summary = {"name": "manifests", "ratio": round(ratio, 3), "goal": GOAL, "met": ratio >= GOAL and growth <= FLAT}
    memory = {"peak_mib": [round(few), round(many)], "growth": round(growth, 3), "growth_goal": FLAT}
    print(json.dumps({**summary, "loop_ratio": whole["loop"] / whole["whole set"], "us": found, **memory}))


if __name__ == "__main__":
    main()
