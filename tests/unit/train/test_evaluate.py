from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from shared.errors import DamageFound, InputFileError, RequestError, StoreError
from shared.store import open_store
from train.checkpoint import load_checkpoint, save_checkpoint
from train.cli import Task, app
from train.config import FitConfig
from train.evaluate import evaluate, table
from train.loop import fit
from train.tasks import TASKS


@pytest.fixture(scope="module")
def run(tmp_path_factory, small_store):
    folder = tmp_path_factory.mktemp("evaluate")
    store = small_store(folder / "store", splits={"train": 24, "val": 12, "test": 12})
    model = {"dim": 12, "text": {"name": "words", "word_dim": 8, "hidden": 16}}
    values = {"store": store, "run": folder / "run", "model": model, "batch_size": 24, "steps": 40, "eval_every": 20}
    config = FitConfig.model_validate(values | {"optim": {"lr": 0.02}, "device": "cpu"})
    fit(config)
    return config


def test_metrics_of_the_best_checkpoint_beside_chance(run):
    result = evaluate(run.run)
    assert json.loads((run.run / "metrics.json").read_text()) == result
    assert (result["split"], result["windows"], result["videos"]) == ("val", 36, 12)
    found = result["text_to_video"]
    assert found["R@10"] > found["chance"]["R@10"]["high"]
    text = table(result)
    assert f"R@10  {found['R@10']:7.2%}" in text
    assert "36 queries, 36 candidates" in text


def test_other_split_level_store_and_file(run, small_store, tmp_path):
    result = evaluate(
        run.run / "checkpoints" / "step-00000040.pt", split="test", settings={"level": "video"}, out=tmp_path / "m.json"
    )
    assert (result["split"], result["level"], result["text_to_video"]["items"]) == ("test", "video", 12)
    assert json.loads((tmp_path / "m.json").read_text()) == result
    other = small_store(tmp_path / "other", splits={"val": 5}, seed=4)
    assert evaluate(run.run, store=other, out=tmp_path / "o.json")["windows"] == 15


def test_batch_size_of_evaluation_changes_nothing(run, tmp_path):
    first = evaluate(run.run, settings={"batch_size": 36}, out=tmp_path / "a.json")
    for batch_size in (1, 5):
        assert evaluate(run.run, settings={"batch_size": batch_size}, out=tmp_path / "b.json") == first


def test_shuffled_captions_give_chance(run, tmp_path, small_store, monkeypatch):
    from train.data import WindowData

    right = WindowData.__init__

    def shuffled(self, *args, **kwargs):
        right(self, *args, **kwargs)
        videos = np.unique(self.windows.video_W)
        self._number_V[videos] = self._number_V[videos[::-1]]

    monkeypatch.setattr(WindowData, "__init__", shuffled)
    found = evaluate(run.run, out=tmp_path / "m.json")["text_to_video"]
    assert found["R@1"] <= found["chance"]["R@1"]["high"]


def test_what_does_not_fit_together_is_refused(run, tmp_path):
    with pytest.raises(RequestError, match="no windows of split 'nope'"):
        evaluate(run.run, split="nope")
    with pytest.raises(RequestError, match="has no checkpoint yet"):
        evaluate(tmp_path)
    with pytest.raises(RequestError, match="does not exist"):
        evaluate(tmp_path / "gone.pt")
    with pytest.raises(RequestError, match="is no store"):
        evaluate(run.run, store=tmp_path)


def test_features_of_another_kind_are_refused(run, tmp_path, monkeypatch):
    from train import evaluate as module

    load = module.load_checkpoint
    monkeypatch.setattr(
        module, "load_checkpoint", lambda path: load(path) | {"stream": {"name": "s3d", "fingerprint": "ff"}}
    )
    with pytest.raises(RequestError, match="stream: 'ff' -> 'ab'"):
        evaluate(run.run)


def test_where_nothing_can_be_written_is_refused_before_anything_is_measured(run, tmp_path, monkeypatch):
    monkeypatch.setattr("train.evaluate.open_subject", lambda *_, **__: pytest.fail("it was measured"))
    with pytest.raises(RequestError, match="is a folder, expected the name of a file"):
        evaluate(run.run, out=tmp_path)
    with pytest.raises(RequestError, match="is inside the store"):
        evaluate(run.run, out=run.store / "runs" / "metrics.json")


def test_a_damaged_checkpoint_is_not_measured(run, tmp_path):
    data = bytearray((run.run / "checkpoints" / "best.pt").read_bytes())
    data[len(data) // 2] ^= 4
    (tmp_path / "best.pt").write_bytes(data)
    with pytest.raises(DamageFound, match=r"best\.pt is damaged"):
        evaluate(tmp_path / "best.pt")


def test_a_checkpoint_of_another_configuration_is_one_message(run, tmp_path):
    content = load_checkpoint(run.run / "checkpoints" / "best.pt")
    save_checkpoint(tmp_path / "a.pt", content | {"config": content["config"] | {"seed": -1, "other": 2}})
    with pytest.raises(
        InputFileError, match=r"takes: seed: Input should .* \(and 1 more\); .* or train again"
    ) as caught:
        evaluate(tmp_path / "a.pt")
    assert "\n" not in str(caught.value)
    save_checkpoint(tmp_path / "b.pt", {"step": 1})
    with pytest.raises(InputFileError, match="it holds no 'config'"):
        evaluate(tmp_path / "b.pt")


def test_a_wrong_option_is_told_in_plain_text():
    shown = CliRunner().invoke(app, ["evaluate", "x", "--level", "zz"])
    assert shown.exit_code == 2
    assert "Error: Invalid value for '--level'" in shown.output
    assert shown.output.isascii()


def test_a_config_of_a_task_is_measured_and_written(run, tmp_path):
    path = tmp_path / "retrieval.yaml"
    path.write_text(
        f"task: retrieval\ncheckpoint: {run.run}\nstore: {run.store}\nout: {tmp_path}/m.json\n"
        "evaluate: {level: video, captions: all, dual_softmax: 0.1, bootstrap: 50}\n"
    )
    shown = CliRunner().invoke(app, ["evaluate", str(path), "evaluate.recall_at=[1,2]"])
    assert shown.exit_code == 0, shown.output
    result = json.loads((tmp_path / "m.json").read_text())
    assert (result["split"], result["level"], result["captions"]) == ("test", "video", "all")
    found = result["text_to_video"]
    assert found["interval"]["R@2"][0] <= found["R@2"] <= found["interval"]["R@2"][1]
    assert "text to video, dual softmax at 0.1: " in shown.output
    refused = CliRunner().invoke(app, ["evaluate", str(path), "--split", "val"])
    assert "change them as key=value behind it" in str(refused.exception)


def test_the_tasks_that_keys_knows():
    assert {task.value for task in Task} == set(TASKS)
    assert "max_iterations" in CliRunner().invoke(app, ["keys", "--task", "linear_probe"]).output


IDENTITY = {"extractor": {"model": "m"}, "decode": {"rules": 3, "keep_partial": False}, "rows": ["npy", "float16", [8]]}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"decode": {"rules": 3, "keep_partial": True}, "rows": ["h5", "float16", [8]]}, None),
        ({"decode": {"rules": 4, "keep_partial": False}}, "stream.decode.rules: 4 -> 3"),
        ({"extractor": {"model": "other"}}, "stream.extractor.model: 'other' -> 'm'"),
    ],
)
def test_rows_of_one_kind_though_the_stream_was_made_again(run, small_store, tmp_path, change, fault):
    """A checkpoint outlives another container and `decode.keep_partial`; of others it names the keys, not hashes."""
    store = small_store(tmp_path / "store", splits={"val": 5}, identity=IDENTITY)
    content = load_checkpoint(run.run / "checkpoints" / "best.pt")
    del content["version"]
    assert content["stream"]["identity"] == open_store(run.store).root.streams["default"].identity
    content["stream"] |= {"fingerprint": "old", "identity": IDENTITY | change}
    save_checkpoint(tmp_path / "r" / "checkpoints" / "best.pt", content)
    if fault is None:
        assert evaluate(tmp_path / "r", store=store)["windows"] == 15
    else:
        with pytest.raises(RequestError, match="other features or tokens") as refused:
            evaluate(tmp_path / "r", store=store)
        assert fault in str(refused.value)
    del content["stream"]["identity"]
    save_checkpoint(tmp_path / "old" / "checkpoints" / "best.pt", content)
    with pytest.raises(RequestError, match="stream: 'old' -> 'ab'"):
        evaluate(tmp_path / "old", store=store)


def test_a_run_s_config_may_say_how_it_is_evaluated(run, tmp_path):
    command = ["evaluate", str(run.run / "config.yaml"), f"run={run.run}", "evaluate.level=video"]
    out = tmp_path / "videos.json"
    result = CliRunner().invoke(app, [*command, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "level video" in result.output
    assert json.loads(out.read_text()) == json.loads(json.dumps(evaluate(run.run, settings={"level": "video"})))
    # An option stands above the config.
    result = CliRunner().invoke(app, [*command, "--level", "window", "--out", str(out)])
    assert "level window" in result.output
    # What decides which checkpoint is best has been decided.
    result = CliRunner().invoke(app, [*command, "evaluate.recall_at=[1,5]", "--out", str(out)])
    assert result.exit_code == 0, result.output
    with pytest.raises(RequestError, match=r"a run folder holds as config\.yaml"):
        CliRunner().invoke(app, ["evaluate", str(run.run), "evaluate.level=video"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("override", "advice"),
    [
        ("store=x", "give --store PATH instead"),
        ("set=x", "give --set NAME instead"),
        ("val_split=test", "give --split NAME instead"),
        ("data.max_rows=3", "leave it out"),
        ("~model.dim", "leave it out"),
        ("evalute.level=video", "is no key of a run's config; is `evaluate` meant"),
    ],
)
def test_overrides_that_the_checkpoint_decides_are_refused(run, override, advice):
    with pytest.raises(RequestError, match=advice):
        CliRunner().invoke(app, ["evaluate", str(run.run / "config.yaml"), override], catch_exceptions=False)


def test_a_mistake_in_the_file_of_a_run_is_told(run, tmp_path):
    path = tmp_path / "run.yaml"
    for text, fault in {
        "evalute: {level: video}": "evalute: unknown key",
        "evaluate: {level: x}": "evaluate.level: ",
    }.items():
        path.write_text(f"store: s\nrun: {run.run}\nepochs: 1\n{text}\n")
        with pytest.raises(RequestError, match=fault):
            CliRunner().invoke(app, ["evaluate", str(path)], catch_exceptions=False)


def test_a_store_that_is_elsewhere_from_here_is_told_with_the_folder(run, tmp_path, monkeypatch):
    content = load_checkpoint(run.run / "checkpoints" / "best.pt")
    del content["version"]
    content["config"] |= {"store": run.store.name}
    save_checkpoint(tmp_path / "r" / "best.pt", content)
    monkeypatch.chdir(run.store.parent)
    assert evaluate(tmp_path / "r" / "best.pt")["split"] == "val"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=rf"store=store, a path from .* taken from {tmp_path}: .*--store PATH"):
        evaluate(tmp_path / "r" / "best.pt")
    content["config"] |= {"store": str(tmp_path / "none")}
    save_checkpoint(tmp_path / "r" / "best.pt", content)
    with pytest.raises(StoreError, match=r"python -m preprocess run CONFIG`$"):
        evaluate(tmp_path / "r" / "best.pt")
