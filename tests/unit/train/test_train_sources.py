"""Several stores in one run: whose batch it is, in which shape, and what does not go together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shared.config import load_config
from shared.errors import RequestError
from shared.store import open_store
from train.config import FitConfig
from train.data import WindowData
from train.delivery.loader import Loader
from train.delivery.windows import first_captions
from train.order import Selection
from train.sources import build_order, open_sources

CONFIG = """
run: r
epochs: 1
batch_size: 4
order: {candidates: 3}
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory, small_store):
    folder = tmp_path_factory.mktemp("sources")
    small_store(folder / "a", splits={"train": 6, "val": 4})
    small_store(folder / "b", splits={"train": 9, "val": 4}, seed=3, set_fingerprint="other")
    return folder


@pytest.fixture
def configured(stores, tmp_path):
    """Overrides -> the config, of the stores a and b."""

    def load(*overrides):
        path = tmp_path / "fit.yaml"
        path.write_text(f"store: {stores / 'a'}\n{CONFIG}")
        return load_config(path, FitConfig, overrides)

    return load


def opened(config):
    main = WindowData(open_store(config.store), config.set, config.train_split, config=config.data)
    return open_sources(config, main)


def delivered(sources, order, selection):
    with Loader(sources.datas, sources.shapes(order, 1), first_ids=sources.offsets) as loader:
        return next(loader.batches(lambda _: selection, 0, 1))


def test_without_a_mixture_there_is_one_source(configured):
    config = configured()
    sources = opened(config)
    order = build_order(sources, config, 2)
    selection = order.batch(0)
    batch = delivered(sources, order, selection)
    assert (len(batch), sources.videos, sources.offsets) == (4, 10, (0,))
    for name, tensor in sources.datas[0].batch(selection).present.items():
        assert (getattr(batch, name) == tensor).all()


def test_video_numbers_of_two_sources_never_coincide(configured, stores):
    config = configured(f"mixture.sources.b.store={stores / 'b'}", "mixture.sources.b.batch_size=6")
    sources = opened(config)
    order = build_order(sources, config, 2)
    assert order.steps_before(1) == 2 * (6 // 4)
    numbers = {0: set(), 1: set()}
    for step in range(12):
        selection = order.batch(step)
        batch = delivered(sources, order, selection)
        assert len(batch) == (4, 6)[selection.source]
        ids = batch.video_ids_B.tolist()
        numbers[selection.source] |= set(ids)
        stored = sources.datas[selection.source].windows.video_W[selection.window_B]
        names = [sources.datas[selection.source].manifest.video_ids[number] for number in stored]
        assert sources.video_names(ids) == names
    assert max(numbers[0]) < 10 <= min(numbers[1]) <= max(numbers[1]) < sources.videos == 23


def test_sources_are_numbered_by_name_and_weighed(configured, stores):
    config = configured(
        f"mixture.sources.z.store={stores / 'b'}", "mixture.sources.z.weight=3",
        f"mixture.sources.c.store={stores / 'a'}", "mixture.weight=4", "mixture.sources.c.order.unit=window",
    )  # fmt: skip
    sources = opened(config)
    assert [source.name for source in sources.settings] == ["(main)", "c", "z"]
    assert sources.shares == [0.5, 0.125, 0.375]
    assert [source.order.unit for source in sources.settings] == ["video", "window", "video"]


def test_what_a_changed_source_changes(configured, stores):
    def identity(store, *overrides):
        config = configured(f"mixture.sources.b.store={stores / store}", *overrides)
        assert "store" not in str(config.identity()["mixture"])
        return build_order(opened(config), config, 1).identity

    same = identity("b")
    assert identity("b") == same
    assert identity("a")["sources"]["b"]["set"] != same["sources"]["b"]["set"]
    assert identity("a")["sources"]["(main)"] == same["sources"]["(main)"]
    assert identity("b", "mixture.sources.b.weight=2") != same


def test_a_source_may_move_and_its_weight_may_not(configured, stores):
    def identity(*overrides):
        return configured(*overrides).identity()

    first = identity(f"mixture.sources.b.store={stores / 'b'}")
    assert identity("mixture.sources.b.store=elsewhere") == first
    assert identity("mixture.sources.b.store=elsewhere", "mixture.sources.b.batch_size=2") != first


@pytest.mark.parametrize("by", ["rows", "tokens"])
def test_arrays_are_as_long_as_their_class(configured, by):
    config = configured("order.unit=window", f"order.buckets={{by: {by}, budget: 40, multiple: 2}}")
    sources = opened(config)
    data, order = sources.datas[0], build_order(sources, config, 2)
    whole = data.batch(first_captions(np.arange(len(data)), data.bag_W, 3))
    lengths = set()
    for step in range(order.steps_before(1)):
        selection = order.batch(step)
        batch = delivered(sources, order, selection)
        rows, tokens = batch.video_BTD.shape[1], batch.tokens_BKL.shape[2]
        assert (rows, tokens) == (selection.rows or data.max_rows, selection.tokens or data.tokens.max_tokens)
        lengths.add((rows, tokens))
        for place, window in enumerate(selection.window_B):
            assert (batch.video_BTD[place] == whole.video_BTD[window, :rows]).all()
            assert not whole.video_mask_BT[window, rows:].any()
            assert (batch.tokens_BKL[place] == whole.tokens_BKL[window, :, :tokens]).all()
            assert (whole.tokens_BKL[window, :, tokens:] == data.tokens.pad_id).all()
    assert len(lengths) == (3 if by == "rows" else 1)


def test_long_windows_are_cut_to_the_last_bound(configured):
    config = configured(
        "data.max_rows=3", "order.unit=window", "order.buckets={budget: 12, multiple: 2, bounds: [2, 9]}"
    )
    sources = opened(config)
    data, order = sources.datas[0], build_order(sources, config, 1)
    selection = next(one for one in map(order.batch, range(20)) if one.rows == 3)
    fixed = data.batch(Selection(selection.window_B, selection.choice_BK))
    assert (delivered(sources, order, selection).video_BTD == fixed.video_BTD).all()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("pad_id", 1, r"tokenizer.pad_id: 0 -> 1"),
        ("vocab_size", 99, r"tokenizer.vocab_size: 64 -> 99"),
    ],
)
def test_sources_of_other_tokens_are_refused_by_name(configured, stores, monkeypatch, key, value, message):
    before = WindowData.__init__

    def other(self, store, *arguments, **options):
        before(self, store, *arguments, **options)
        if store.path.name == "b":
            self.manifest.info.tokenizer[key] = value

    monkeypatch.setattr(WindowData, "__init__", other)
    with pytest.raises(RequestError, match=message) as error:
        opened(configured(f"mixture.sources.b.store={stores / 'b'}"))
    assert f"{stores / 'b'} (mixture.sources.b)" in str(error.value)
    assert f"{stores / 'a'}:" in str(error.value)


def test_a_source_that_the_ranks_cannot_share_is_named(configured, stores):
    config = configured(f"mixture.sources.b.store={stores / 'b'}", "mixture.sources.b.batch_size=5")
    with pytest.raises(RequestError, match=r"^mixture\.sources\.b\.batch_size=5 is the global batch, and 2 ranks"):
        build_order(opened(config), config, 2)
    config = configured(f"mixture.sources.b.store={stores / 'b'}", "mixture.sources.b.batch_size=12")
    with pytest.raises(RequestError, match=r"use at most mixture\.sources\.b\.batch_size=9"):
        build_order(opened(config), config, 1)


def test_the_text_tower_takes_the_longest_captions_of_all(configured, stores):
    sources = opened(configured(f"mixture.sources.b.store={stores / 'b'}"))
    assert sources.tokens == sources.datas[0].tokens
    sources.datas[1].tokens = replace(sources.datas[1].tokens, max_tokens=9)
    assert sources.tokens == replace(sources.datas[0].tokens, max_tokens=9)
