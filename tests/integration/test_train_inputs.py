"""`train fit` on several streams of rows, and on stored embeddings of captions: learned, stopped in between, and
measured on other stores. (From videos through two streams to metrics: test_whole_path.)"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from shared.cli import guarded
from train.checkpoint import checkpoint_path, load_checkpoint
from train.cli import app

CONFIG = """
model: {dim: 12, video: {layer_norm: true}, text: TEXT}
batch_size: 24
steps: 60
optim: {lr: 0.02}
checkpoint: {every_epochs: 0, every_steps: 30}
eval_every: 0
device: cpu
"""
TEXTS = {"words": "{name: words, word_dim: 8, hidden: 16}", "stored": "{name: stored, hidden: 16}"}
THINGS = np.random.RandomState(5).standard_normal((12, 5))


# Results are equal to the bit only at equal thread counts.
pytestmark = pytest.mark.usefixtures("one_thread")


def command(*arguments: str) -> int:
    """`python -m train ARGUMENTS` in this process; its exit code."""
    return guarded(lambda: app(list(arguments), standalone_mode=False))


def showing(video: str, rows: int) -> np.ndarray:
    """What a hand-made video shows, as its captions say: train000 is thing 0, and so is val000 behind 24 of them."""
    return THINGS[int(video[-3:]) % 12] + 0.1 * np.random.RandomState(int(video[-3:])).standard_normal((rows, 5))


def uneven(video: str, seconds: float) -> np.ndarray:
    borders = np.array([0, 1.5, 2, 4.75, 8, 11.25, seconds])
    return np.stack([borders[:-1], borders[1:]], axis=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, small_store, add_stream, even):
    """A store whose own stream is noise, and whose stream `things` shows what captions say; a config for each tower."""
    folder = tmp_path_factory.mktemp("inputs")
    store = small_store(folder / "store", encoder="e")
    add_stream(store, "default", even(1.0), dim=8, fingerprint="ab")
    add_stream(store, "things", even(0.6, 1.7), dim=5, dtype="float32", rows_of=showing)
    add_stream(store, "scenes", uneven, dim=3)
    for name, text in TEXTS.items():
        (folder / f"{name}.yaml").write_text(f"store: {store}\n{CONFIG.replace('TEXT', text)}")
    return folder


def recall(run, *arguments: str):
    assert command("evaluate", str(run), *arguments) == 0
    return json.loads((run / "metrics.json").read_text())


@pytest.mark.parametrize("text", TEXTS)
def test_what_only_the_further_stream_shows_is_learned_and_measured(folder, tmp_path, text, capsys):
    found = {}
    for name, also in (("alone", "null"), ("both", "[things]")):
        run = tmp_path / name
        assert command("fit", str(folder / f"{text}.yaml"), f"run={run}", f"data.also={also}") == 0
        found[name] = recall(run)["text_to_video"]
    assert found["both"]["R@5"] > found["both"]["chance"]["R@5"]["high"]
    assert found["alone"]["R@5"] < found["both"]["R@5"] - 0.2
    assert "rows of 8 + 5 from streams default, things" in capsys.readouterr().out


@pytest.mark.parametrize("text", TEXTS)
def test_stopped_and_resumed_is_uninterrupted(folder, tmp_path, text, capsys):
    """Rows made by worker processes from the middle on."""
    fit = ("fit", str(folder / f"{text}.yaml"), f"run={tmp_path}", "data.also=[scenes,things]")
    assert command(*fit) == 0
    whole = load_checkpoint(checkpoint_path(tmp_path, 60))
    assert [kind["name"] for kind in whole["further_streams"]] == ["scenes", "things"]
    assert whole["model"]["video.projection.weight"].shape == (12, 8 + 3 + 5)
    checkpoint_path(tmp_path, 60).unlink()
    assert command(*fit, "data.workers=2") == 0
    assert "after step 30" in capsys.readouterr().out
    again = load_checkpoint(checkpoint_path(tmp_path, 60))
    for name, weight in whole["model"].items():
        assert torch.equal(again["model"][name], weight), name
    for changes, said in (
        (["data.also=null"], "data.also: ['scenes', 'things'] -> None"),
        (["data.also=[things,scenes]"], "data.also: "),
        (["data.missing=zeros"], "data.missing: None -> 'zeros'"),
    ):
        assert command(*fit, *changes) == 2
        assert said in capsys.readouterr().err


def test_another_store_needs_streams_of_the_same_names_and_channels(
    folder, tmp_path, small_store, add_stream, even, capsys
):
    run = tmp_path / "run"
    assert command("fit", str(folder / "words.yaml"), f"run={run}", "data.also=[things]", "steps=2") == 0
    other = small_store(tmp_path / "other", splits={"val": 5})
    capsys.readouterr()
    assert command("evaluate", str(run), "--store", str(other)) == 2
    assert f"store {other} has no stream 'things'; it has default" in capsys.readouterr().err
    add_stream(other, "things", even(1.0), dim=3)
    assert command("evaluate", str(run), "--store", str(other)) == 2
    assert "channels: [8, 5] -> [8, 3]" in capsys.readouterr().err
    add_stream(other, "things", even(1.0), dim=5, dtype="float32", without=("val003",))
    assert command("evaluate", str(run), "--store", str(other)) == 2
    assert "lacks 1 of 5 videos with windows ('val003')" in capsys.readouterr().err
    add_stream(other, "things", even(1.0), dim=5, dtype="float32")
    assert recall(run, "--store", str(other))["windows"] == 15
