"""`train plan`: every figure against one that was counted plainly."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from shared.cli import guarded
from shared.config import load_config
from shared.errors import RequestError
from shared.store import open_store
from shared.window_table import WindowTable
from train.cli import app
from train.config import FitConfig
from train.data import WindowData
from train.delivery.loader import Loader
from train.loop import fit
from train.plan import plan, rows_covered
from train.sources import build_order, open_sources


@pytest.fixture(scope="module")
def config(tmp_path_factory, small_store):
    folder = tmp_path_factory.mktemp("plan")
    path = folder / "fit.yaml"
    store = small_store(folder / "store")
    small_store(folder / "other", splits={"train": 9}, seed=3)
    path.write_text(f"store: {store}\nrun: {folder / 'run'}\nbatch_size: 8\nepochs: 3\norder: {{candidates: 2}}\n")
    return path


def command(*arguments):
    return guarded(lambda: app(["plan", *arguments], standalone_mode=False))


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["order.unit=window", "data.max_rows=3", "data.max_tokens=1"],
        ["order.unit=window", "order.buckets={budget: 20, multiple: 4}", "data.workers=2"],
        ["mixture={sources: {other: {store: OTHER, batch_size: 4}}}"],
    ],
)
def test_what_it_says_is_what_training_meets(config, overrides):
    loaded = load_config(config, FitConfig, [text.replace("OTHER", str(config.parent / "other")) for text in overrides])
    found = plan(loaded, ranks=2, cores=20)
    main = WindowData(open_store(loaded.store), "default", "train", config=loaded.data)
    sources = open_sources(loaded, main)
    order = build_order(sources, loaded, 2)
    assert found["steps"] == order.steps_before(3)
    assert found["steps_first_epoch"] == order.steps_before(1)
    assert found["workers"] == {"configured": loaded.data.workers, "advised": 6, "cores": 20}
    with Loader(sources.datas, sources.shapes(order, 2), config=loaded.data, first_ids=sources.offsets) as loader:
        batches = loader.batches(lambda step: order.batch(step).part(0, 1), 0, 0)
        assert list(batches) == []
        assert found["ring"] <= loader._maker.ring.bytes < found["ring"] + found["ring_slots"] * 4096
    whole = [sources.datas[s.source].batch(s) for s in map(order.batch, range(order.steps_before(1)))]
    rows = [int(batch.video_mask_BT.sum()) for batch in whole]
    held = sum(batch.video_mask_BT.numel() for batch in whole)
    assert found["padding"]["rows"] == pytest.approx(1 - sum(rows) / held)
    words = sum(int(batch.token_mask_BKL.sum()) for batch in whole)
    assert found["padding"]["tokens"] == pytest.approx(1 - words / sum(b.token_mask_BKL.numel() for b in whole))
    assert found["read_per_epoch"] == sum(rows) * 8 * 2
    assert [one["windows"] for one in found["sources"]] == [len(data) for data in sources.datas]
    assert found["sources"][0]["page_cache"] == len(plainly_covered(main.windows)) * 8 * 2


def plainly_covered(table):
    windows = zip(table.video_W.tolist(), table.first_row_W.tolist(), table.rows_W.tolist(), strict=True)
    return {(video, row) for video, first, rows in windows for row in range(first, first + rows)}


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_overlapping_windows_count_once(seed):
    draw = np.random.default_rng(seed)
    count = int(draw.integers(1, 40))
    of_videos, none = draw.integers(0, 4, count).astype(np.int32), np.empty(0)
    first, rows = draw.integers(0, 30, count), draw.integers(1, 12, count)
    table = WindowTable(of_videos, none, none, first, rows, none, none, none)
    assert rows_covered(table) == len(plainly_covered(table))


def test_it_prints_text_or_json(config, capsys):
    assert command(str(config), "--ranks", "2", "batch_size=12") == 0
    text = capsys.readouterr().out
    assert "72 windows of 24 videos" in text
    assert "steps      6, 2 of them in the first epoch" in text
    assert command(str(config), "--json", "--cores", "10") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["workers"]["advised"] == 6
    assert not (config.parent / "run").exists()


def test_a_request_that_cannot_be_trained_is_refused_alike(config, capsys):
    assert command(str(config), "--ranks", "3") == 2
    assert "batch_size=8" in capsys.readouterr().err
    assert command(str(config), "train_split=none") == 2
    assert "no windows of split 'none'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["sync_batch_norm=true"], "sync_batch_norm=true on device cpu"),
        (["sync_batch_norm=true", "device=cuda"], "the model has no batch norm"),
        (["precision=float16"], "precision=float16 on device cpu"),
        (["device=cuda", "shard=2", "offload=true"], "offload=true on one process"),
        (["optim.freeze=['*']"], "every parameter of the model is frozen"),
        (["optim.groups=[{pattern: '*', scale: 1}, {pattern: 'text.*', scale: 2}]"], "is left with no parameter"),
        (["val_split=none"], "no windows of split 'none'"),
        (["run=STORE/run"], "run folder"),
    ],
)
def test_what_training_refuses_is_refused(config, overrides, message):
    store = str(config.parent / "store")
    small = ["model.dim=16", "model.text={name: words, word_dim: 2, hidden: 4}", "device=cpu"]
    loaded = load_config(config, FitConfig, [*small, *(text.replace("STORE", store) for text in overrides)])
    with pytest.raises(RequestError, match=message):
        plan(loaded, ranks=1, cores=2)
    if loaded.device == "cpu":
        with pytest.raises(RequestError, match=message):
            fit(loaded.model_copy(update={"steps": 1, "epochs": None}))


def test_the_largest_queue_of_a_given_memory_by_hand(config):
    small = ["model.dim=16", "model.text={name: words, word_dim: 2, hidden: 4}", "order.candidates=2"]
    found = plan(load_config(config, FitConfig, small), ranks=1, cores=2, memory=1 << 28)
    memory, queue = found["memory"], found["queue"]
    assert memory["device"] == "cpu"
    # 2 sides x (16 numbers and an id), and laid out for the loss 17 numbers, sums and flags.
    each = 2 * (16 * 4 + 8) + 2 * (17 * 4 + 16)
    assert queue["bytes_an_entry"] == each
    # Similarities with so many stand in tiles, the largest of 512 entries and 16 captions, 4 times in its backward.
    tile = 512 * 16 * 4 * 4 + 512 * (16 + 2) * 4
    assert memory["logits"] > memory["update"]
    assert queue["model"] == memory["planned"] + tile
    assert queue["largest"] == ((1 << 28) - queue["model"]) // each
    assert queue["configured"] is None


@pytest.mark.parametrize("kind", ["queue", "moco"])
def test_a_queue_of_k_fits_and_of_one_more_does_not(config, kind):
    def configured(size: int, *more: str):
        overrides = ["model.dim=16", f"negatives={{name: {kind}, size: {size}}}", *more]
        return plan(load_config(config, FitConfig, overrides), ranks=1, cores=2, memory=1 << 26)["queue"]

    largest = configured(1)["largest"]
    at_k, above = configured(largest), configured(largest + 1)
    assert at_k["largest"] == above["largest"] == largest
    assert (at_k["configured"]["fits"], above["configured"]["fits"]) == (True, False)
    assert at_k["model"] + at_k["configured"]["bytes"] <= 1 << 26 < above["model"] + above["configured"]["bytes"]


def test_key_towers_leave_less_room(config):
    models = [
        plan(load_config(config, FitConfig, [f"negatives={{name: {kind}, size: 9}}"]), ranks=1, cores=2)["queue"][
            "model"
        ]
        for kind in ("queue", "moco")
    ]
    parameters = plan(load_config(config, FitConfig), ranks=1, cores=2)["memory"]["parameters"]
    assert models[1] - models[0] == parameters


def test_it_says_where_each_figure_comes_from(config, capsys):
    small = ["model.dim=16", "model.text={name: words, word_dim: 6, hidden: 12}"]
    assert command(str(config), *small, "--memory-gib", "0.5", "negatives={name: queue, size: 100}") == 0
    text = capsys.readouterr().out
    for words in ("parameters ", "gradients ", "optimizer ", "logits ", "planned    at least ", "negatives  "):
        assert f"\n{words}" in text
    assert "K = (free 536,870,912 - model " in text
    assert "free as given, model as planned" in text
    assert "negatives.name=queue, size=100 fits" in text
    assert command(str(config), *small, "--ranks", "2", "--memory-gib", "0", "shard=1") == 0
    text = capsys.readouterr().out
    assert "queue      at most 0 videos" in text
    assert "DDP's buckets hold them" in text
    assert "shard" not in text
    for ranks, found in ((1, False), (2, True)):
        assert command(str(config), *small, "--ranks", str(ranks), "--memory-gib", "1", "shard=3") == 0
        text = capsys.readouterr().out
        assert ("at most: shard=3 spreads what follows, but all of it is counted" in text) == found
    assert command(str(config), *small, "negatives={name: queue, size: 100, limit_gib: 0.00001}") == 0
    text = capsys.readouterr().out
    assert "training refuses it" in text
    # 0.00001 GiB are 10,737 bytes, of 128 for a video and its caption.
    assert "negatives.limit_gib=1e-05 allows no more than 83, training refuses others" in text
    assert command(str(config), *small, "negatives={name: queue, size: 83, limit_gib: 0.00001}") == 0
    assert "training refuses it" not in capsys.readouterr().out


def test_memory_that_is_given_for_a_cpu_is_called_so(config, capsys):
    told = "the run would train on its CPU; device=cuda plans for a GPU"
    for device, said in (("cpu", True), ("cuda", False)):
        assert command(str(config), f"device={device}", "--memory-gib", "80", "model.dim=16") == 0
        assert (told in capsys.readouterr().out) == said
    assert command(str(config), "device=cpu", "model.dim=16") == 0
    assert told not in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_for_a_gpu_that_is_not_here(config, capsys):
    assert command(str(config), "device=cuda", "--memory-gib", "79.5") == 0
    assert "MiB on each rank's cuda" in capsys.readouterr().out
    assert command(str(config), "device=cuda") == 0
    assert "give --memory-gib for the largest queue" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["inf", "nan", "-1", "much"])
def test_a_memory_that_is_none_is_refused(config, value, capsys):
    with pytest.raises(SystemExit) as ended:
        app(["plan", str(config), "--memory-gib", value])
    assert ended.value.code == 2
    assert "memory-gib" in capsys.readouterr().err


def test_further_streams_are_counted_too(config, add_stream, even, small_store, tmp_path):
    store = small_store(tmp_path / "store")
    add_stream(store, "more", even(5.0), dim=6, dtype="float32")
    loaded = load_config(config, FitConfig, [f"store={store}"])
    alone = plan(loaded, ranks=1, cores=4)
    both = plan(load_config(config, FitConfig, [f"store={store}", "data.also=[more]"]), ranks=1, cores=4)
    main = WindowData(open_store(store), "default", "train", config=loaded.data)
    assert both["read_per_epoch"] == alone["read_per_epoch"] // 16 * (16 + 24)
    # A video of 15 seconds has three rows of five seconds each.
    added = min(len(plainly_covered(main.windows)), 24 * 3) * 24
    assert both["sources"][0]["page_cache"] == alone["sources"][0]["page_cache"] + added
    assert both["batch"] - alone["batch"] == 8 * 5 * (14 * 4 - 8 * 2)
