"""A corpus of short H.264 videos with careless narration: `python -m demo.corpus FOLDER [--seed N]`.

FOLDER/videos/demo_000.mp4 ...      256 x 192 pixels, 10 or 12 frames a second, 4 to 6 scenes of 5 to 10 s
FOLDER/captions/demo_000.en.vtt ... WebVTT and SubRip in turn, every other WebVTT file rolling
FOLDER/videos.csv                   input manifest, every fourth video held out (split `val`)
FOLDER/videos-shuffled.csv          with --shuffle-captions only: training videos have each other's captions
FOLDER/corpus.json                  what was drawn; written last, so that a complete corpus is known as such
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from demo.caption_files import FORM_ORDER, FORMS
from demo.encode import encode_h264, ffmpeg_binary
from demo.movement import scene_frames
from demo.narration import Split, narrate
from demo.scenes import draw_scenes, stream
from shared.cli import guarded
from shared.errors import RequestError

SIZE = (256, 192)
FRAME_RATES = (10, 12)  # in turn
HELD_OUT_EVERY = 4
LEAST_VIDEOS = 4
PROCESSES = 2
COLUMNS = ("video_id", "video_path", "caption_path", "split")


@dataclass(frozen=True)
class Video:
    """One video to draw: its number in the corpus decides everything about it but the seed."""

    seed: int
    number: int

    @property
    def video_id(self) -> str:
        return f"demo_{self.number:03d}"

    @property
    def fps(self) -> int:
        return FRAME_RATES[self.number // 2 % len(FRAME_RATES)]

    @property
    def split(self) -> Split:
        # Caption forms are dealt out by fours too; shifting by one in every round gives held-out videos all of them.
        held_out = self.number % HELD_OUT_EVERY == self.number // HELD_OUT_EVERY % HELD_OUT_EVERY
        return "val" if held_out else "train"

    @property
    def video_path(self) -> str:
        return f"videos/{self.video_id}.mp4"

    @property
    def caption_path(self) -> str:
        return f"captions/{self.video_id}{FORMS[self.form][0]}"

    @property
    def form(self) -> str:
        return FORM_ORDER[self.number % len(FORM_ORDER)]


def draw_corpus(folder: Path, seed: int, videos: int) -> bool:
    """Draw the corpus into `folder`; False when the same one is there already and nothing was done.

    Raises RequestError when `seed` is negative, `videos` below 4 or `folder` holds another corpus;
    EnvironmentLacking without ffmpeg.
    """
    if seed < 0:
        raise RequestError(f"--seed {seed}: expected 0 or more")
    if videos < LEAST_VIDEOS:
        raise RequestError(f"--videos {videos}: expected at least {LEAST_VIDEOS}, so that some are held out")
    wanted = {"seed": seed, "videos": videos, "drawing": _drawing_digest()}
    if _is_drawn(folder, wanted):
        return False
    ffmpeg_binary()  # fail before the work, not in it
    for name in ("videos", "captions"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    plan = [Video(seed, number) for number in range(videos)]
    # spawn, as everywhere in this project: a forked child would inherit the caller's threads and locks
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_draw_video, plan, [folder] * videos))
    _write(folder / "videos.csv", manifest_text(plan))
    _write(folder / "corpus.json", json.dumps(wanted, indent=2) + "\n")
    return True


def shuffle_captions(folder: Path, seed: int, videos: int) -> Path:
    """Write `videos-shuffled.csv` for a drawn corpus and return its path.

    Every training video gets the captions of another training video; held-out videos keep theirs.
    """
    plan = [Video(seed, number) for number in range(videos)]
    train = [video for video in plan if video.split == "train"]
    order = stream(seed, videos, "shuffle").permutation(len(train)).tolist()
    # Each takes the captions of the next one in a random round: nobody can get their own.
    taken = {train[here]: train[there] for here, there in zip(order, order[1:] + order[:1], strict=True)}
    path = folder / "videos-shuffled.csv"
    _write(path, manifest_text(plan, taken))
    return path


def manifest_text(plan: list[Video], taken: dict[Video, Video] | None = None) -> str:
    """The input manifest as CSV; `taken` names whose captions a video gets instead of its own."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for video in plan:
        captions = (taken or {}).get(video, video).caption_path
        writer.writerow([video.video_id, video.video_path, captions, video.split])
    return text.getvalue()


def _draw_video(video: Video, folder: Path) -> None:
    scenes = draw_scenes(video.seed, video.number, video.fps)
    details = stream(video.seed, video.number, "details")
    frames = (frame for scene in scenes for frame in scene_frames(scene, SIZE, video.fps, details))
    encode_h264(frames, SIZE, video.fps, folder / video.video_path)
    cues = narrate(scenes, video.seed, video.number, video.split)
    _write(folder / video.caption_path, FORMS[video.form][1](cues))


def _is_drawn(folder: Path, wanted: dict[str, object]) -> bool:
    record = folder / "corpus.json"
    if not record.exists():
        return False
    found = json.loads(record.read_text())
    if found != wanted:
        changed = ", ".join(
            f"{key} {found.get(key)} instead of {value}" for key, value in wanted.items() if found.get(key) != value
        )
        raise RequestError(f"{folder} holds another corpus ({changed}); name another folder, or remove this one")
    return True


def _drawing_digest() -> str:
    """A digest of the code that draws, so that a corpus of an older version is not taken for this one's."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    drawing = [path for path in sources if path.name != "__main__.py"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in drawing)).hexdigest()[:16]


def _write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8", newline="\n")
    partial.replace(path)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo.corpus", description="Draw the demo corpus.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--videos", type=int, default=120, help="how many (default: %(default)s)")
    parser.add_argument("--shuffle-captions", action="store_true", help="also write videos-shuffled.csv, a control")
    asked = parser.parse_args()
    drawn = draw_corpus(asked.folder, asked.seed, asked.videos)
    print(f"{asked.videos} videos {'drawn' if drawn else 'are already'} in {asked.folder}")
    if asked.shuffle_captions:
        shuffled = shuffle_captions(asked.folder, asked.seed, asked.videos)
        print(f"captions shuffled across training videos: {shuffled}")


if __name__ == "__main__":
    sys.exit(guarded(_main))
