"""From a plain folder to a store: what an adapter writes, `preprocess run` takes as it is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from shared.manifest_writer import CAPTION_COLUMNS
from shared.store import open_store
from shared.verify import verify_store

CONFIG = """
inputs: {folder}/videos.csv
store: {folder}/store
engine: here
streams:
  default: {{kind: timm, size: 64}}
sets:
  default: {{windows: {{strategy: video}}}}
"""


def preprocess(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "preprocess", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_folder_becomes_a_store(draw_video: Callable[..., None], tmp_path: Path) -> None:
    clips = tmp_path / "clips"
    for folder in ("train", "val"):
        (clips / folder).mkdir(parents=True)
    draw_video(clips / "train" / "-a b.mp4")
    (clips / "train" / "-a b.en.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:01.000\nthe first words\n")
    draw_video(clips / "val" / "c.mkv", hue=90)
    (clips / "val" / "c.txt").write_text("what all of it shows\n")
    Image.new("RGB", (64, 48), (200, 30, 30)).save(clips / "train" / "red.png")
    (clips / "train" / "red.txt").write_text("a red picture")
    adapted = preprocess("adapt", "folder", clips)
    assert adapted.returncode == 0, adapted.stderr
    assert "3 videos (2 train, 1 val), 3 with captions" in adapted.stdout
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(folder=clips))
    done = preprocess("run", config)
    assert done.returncode == 0, done.stdout + done.stderr
    store = clips / "store"
    assert verify_store(store) == []
    made = open_store(store).manifest_set("default")
    found = {row["video_id"]: (row["start"], row["end"], row["text"]) for row in made.rows("captions", CAPTION_COLUMNS)}
    assert found == {
        "train/-a b": ("0", "1", "the first words"),
        "val/c": ("0", "2", "what all of it shows"),
        "train/red": ("0", "0.04", "a red picture"),
    }
    assert made.info.splits == {"train": 2, "val": 1}
