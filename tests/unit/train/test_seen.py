"""What a checkpoint saw and what stands there now, in words."""

from __future__ import annotations

import pytest

from shared.errors import RequestError
from train.checkpoint import best_path, load_checkpoint, save_checkpoint
from train.config import FitConfig
from train.evaluate import evaluate
from train.loop import fit
from train.seen import in_words


def settings(store, run, **further):
    model = {"dim": 8, "text": {"name": "words", "word_dim": 4, "hidden": 8}}
    values = {"store": store, "run": run, "model": model, "batch_size": 8, "steps": 1, "device": "cpu"}
    return FitConfig.model_validate(values | further)


@pytest.fixture(scope="module")
def run(tmp_path_factory, small_store):
    folder = tmp_path_factory.mktemp("seen")
    store = small_store(folder / "store", identity={"extractor": {"model": "m", "weights": "0123456789abcdef" * 2}})
    fit(settings(store, folder / "run"))
    return folder / "run"


@pytest.fixture
def other_stream(run, tmp_path):
    """The run's checkpoints, as if its stream had been another: wider rows, another model."""

    def copy(channels):
        content = load_checkpoint(best_path(run))
        del content["version"]
        identity = {"extractor": {"model": "s3d", "weights": "ffffffffffffffff" * 2}}
        content["stream"] |= {"fingerprint": "cd" * 16, "identity": identity}
        content["order"]["identity"] |= {"stream": "cd" * 16}
        content["input_dim"] = channels
        save_checkpoint(best_path(tmp_path / "run"), content)
        return best_path(tmp_path / "run")

    return copy


def test_lines_for_people_come_first_and_hashes_are_not_shown():
    digest = "0123456789abcdef"
    lines = [f"a.set: '{digest}' -> '{digest[::-1]}'", f"b: None -> '{digest}'", "lr: 1 -> 2"]
    assert in_words(lines) == ["lr: 1 -> 2", "a.set: other content", "b: other content"]


def test_another_stream_of_the_store_is_told_by_channels_and_extractor(run, other_stream, tmp_path, small_store):
    store = run.parent / "store"
    resumed = settings(store, tmp_path / "new", resume=str(other_stream(12)), optim={"lr": 0.5}, seed=4)
    with pytest.raises(RequestError) as refused:
        fit(resumed)
    assert str(refused.value).splitlines()[1:] == [
        "  optim.lr: 0.001 -> 0.5",
        "  seed: 0 -> 4",
        f"  store={store}: its stream was made by another extractor, or another setting of it, than the rows seen",
        f"  channels of a row: the run saw [12], {store} has [8]",
        "  stream.extractor.model: 's3d' -> 'm'",
        "  stream.extractor.weights: other content",
        "set these back, with the store as it was, or start anew with another run=PATH",
    ]


def test_evaluation_tells_the_same_of_another_store(run, other_stream, tmp_path):
    with pytest.raises(RequestError) as refused:
        evaluate(other_stream(12))
    first, *lines, advice = str(refused.value).splitlines()
    assert f"(left) than set 'default' of {run.parent / 'store'} has (right)" in first
    assert lines == [
        "  channels: [12] -> [8]",
        "  stream.extractor.model: 's3d' -> 'm'",
        "  stream.extractor.weights: other content",
    ]
    assert advice.startswith("use a store that was made with the same extractor")


def test_other_windows_and_a_mixture_are_told_by_source(run, tmp_path, small_store):
    more = small_store(tmp_path / "more", splits={"train": 30, "val": 8}, seed=1)
    mixed = {"mixture": {"sources": {"b": {"store": more}}}}
    fit(settings(run.parent / "store", tmp_path / "mixed", **mixed))
    changed = small_store(tmp_path / "changed", splits={"train": 20, "val": 8}, seed=1)
    mixed["mixture"]["sources"]["b"]["store"] = changed
    with pytest.raises(RequestError) as refused:
        fit(settings(run.parent / "store", tmp_path / "mixed", **mixed))
    assert str(refused.value).splitlines()[1:-1] == [
        f"  mixture.sources.b.store={changed}: set 'default' holds other windows or captions than the one that the run "
        "began with (90 windows then, 60 windows now)",
    ]
    # Rows that are seen in other windows are told as they stand, where nothing else is.
    content = load_checkpoint(best_path(run))
    del content["version"]
    content["order"]["identity"] |= {"longest": 3}
    save_checkpoint(tmp_path / "longest.pt", content)
    with pytest.raises(RequestError, match=r"\n  longest: 3 -> 5\n"):
        fit(settings(run.parent / "store", tmp_path / "l", resume=str(tmp_path / "longest.pt")))
