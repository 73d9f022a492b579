"""`train plan --measure`: real steps, of which nothing stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel

from shared.cli import guarded
from shared.config import load_config
from shared.errors import RequestError
from train.cli import app
from train.config import FitConfig
from train.measure import measure

SECTIONS = """
model: {dim: 8, video: {name: mean}, text: TEXT}
order: {candidates: 3}
batch_size: 8
steps: 6
device: cpu
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory, small_store):
    folder = tmp_path_factory.mktemp("measure")
    small_store(folder / "store")
    return written(folder, "words", "{name: words, word_dim: 6, hidden: 12}")


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(f"store: {folder / 'store'}\nrun: {folder / 'run'}\n{SECTIONS.replace('TEXT', text)}")
    return path


@pytest.fixture(scope="module")
def deep_bert(tmp_path_factory):
    """Six layers over the store's 64 ids."""
    folder = tmp_path_factory.mktemp("deep") / "bert"
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 6, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=64, max_position_embeddings=16, **sizes)).save_pretrained(folder)
    return folder


def found(config, *overrides: str, ranks: int = 1):
    return measure(load_config(config, FitConfig, list(overrides)), ranks)


def files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def test_it_says_what_steps_took_and_writes_nothing(config, capsys):
    def plan(*more: str):
        arguments = ["plan", str(config), "negatives={name: queue, size: 50}", "--json", "--memory-gib", "1", *more]
        assert guarded(lambda: app(arguments, standalone_mode=False)) == 0
        return json.loads(capsys.readouterr().out)

    before = files(config.parent)
    said, without = plan("--measure"), plan()
    [way] = said["measured"]
    memory, queue = said["memory"], said["queue"]
    assert way["checkpointing"] is None
    assert way["clips"] == 8
    assert way["seconds"] > 0
    assert way["peak"] > memory["gradients"]
    lasting = sum(memory[name] for name in ("parameters", "optimizer", "keys", "teacher", "batches"))
    # In both cases the tiles of a queue that fills the memory come on top.
    step = memory["gradients"] + max(memory["logits"], memory["update"])
    tiles = without["queue"]["model"] - lasting - step
    assert without["measured"] == []
    assert queue["model"] == lasting + way["peak"] - memory["compared"] + tiles
    assert queue["largest"] == ((1 << 30) - queue["model"]) // queue["bytes_an_entry"]
    assert files(config.parent) == before


def test_the_same_again_and_less_in_parts_or_with_frozen_towers(config):
    whole = found(config)[0].peak
    assert found(config)[0].peak == whole
    wide = ["model.text.hidden=4000"]
    assert found(config, *wide, "micro_batches=4")[0].peak < found(config, *wide)[0].peak
    assert found(config, "optim.freeze=[text.*]")[0].peak < whole


@pytest.mark.parametrize("kind", ["queue", "moco", "bank"])
def test_what_is_remembered_is_full(config, kind):
    sizes = (10, 24) if kind == "bank" else (10, 500)
    few, many = (found(config, f"negatives={{name: {kind}, size: {size}}}")[0].peak for size in sizes)
    assert many > few


def test_checkpointing_is_shown_both_ways_and_takes_less(config, deep_bert):
    path = written(config.parent, "bert", f"{{name: bert, weights: '{deep_bert}'}}")
    plain, saved = found(path)
    assert (plain.checkpointing, saved.checkpointing) == (False, True)
    assert saved.peak < 0.8 * plain.peak
    ways = found(path, "model.text.checkpointing=true")
    assert [way.checkpointing for way in ways] == [True, False]
    assert ways[0].peak == saved.peak
    [frozen] = found(path, "model.text.frozen=true")
    assert frozen.checkpointing is None


def test_a_part_of_a_batch_of_several_ranks(config):
    assert found(config, ranks=4)[0].clips == 2


def test_it_is_refused_on_several_ranks(config, monkeypatch):
    monkeypatch.setattr("train.measure.distributed_world", lambda *_: Several())
    with pytest.raises(RequestError, match=r"on 2 ranks: .* start it without torchrun, with --ranks 2"):
        found(config)


class Several:
    size = 2

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass
