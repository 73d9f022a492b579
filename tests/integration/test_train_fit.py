"""`train fit` from the command line: whatever stops it, going on gives what never stopping would have given."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from shared.cli import guarded
from train.checkpoint import checkpoint_path, last_checkpoint, load_checkpoint, save_checkpoint
from train.cli import app
from train.loop import Trainer
from train.model import Embeddings
from train.towers import Inputs, Towers

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("fit_worker.py")
CONFIG = """
model: {dim: 8, video: {name: attention, dropout: 0.2}, text: {name: words, word_dim: 6, hidden: 12},
        temperature: {learned: true}}
order: {unit: window, candidates: 2, captions: random}
optim: {lr: 0.02}
batch_size: 12
epochs: 3
log_every: 1
checkpoint: {every_epochs: 0, every_steps: 3}
device: cpu
"""
STEPS = 3 * (24 * 3 // 12)


# As in the processes that are started here: results are equal to the bit only at equal thread counts.
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def config(tmp_path_factory, small_store):
    folder = tmp_path_factory.mktemp("fit")
    store = small_store(folder / "store")
    path = folder / "fit.yaml"
    path.write_text(f"store: {store}\nrun: {folder / 'run'}\n{CONFIG}")
    return path


def run(command: list[str], ranks: int) -> subprocess.CompletedProcess[str]:
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *launch, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240
    )


def fit(config: Path, run_folder: Path, ranks: int, *overrides: str) -> str:
    """Train to the end, alone in this process or on several ranks; returns what it printed."""
    arguments = ["fit", str(config), f"run={run_folder}", *overrides]
    if ranks == 1:
        with redirect_stdout(io.StringIO()) as printed:
            assert command(*arguments) == 0
        return printed.getvalue()
    done = run(["-m", "train", *arguments], ranks)
    assert done.returncode == 0, done.stderr
    return done.stdout


def interrupted(config: Path, run_folder: Path, ranks: int, name: str, step: int, *overrides: str) -> int:
    """Train until the last rank sends itself a signal; returns the exit code."""
    worker = [str(WORKER), str(config), name, str(step), str(ranks - 1), f"run={run_folder}", *overrides]
    return run(worker, ranks).returncode


def command(*arguments: str) -> int:
    """`python -m train ARGUMENTS` in this process; its exit code."""
    return guarded(lambda: app(list(arguments), standalone_mode=False))


def logged(run_folder: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what is measured in seconds."""
    records = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    timed = ("samples_per_s", "data_wait", "communicating", "computing")
    return [
        {key: value for key, value in record.items() if key not in timed}
        for record in records
        if record.get("warning", {}).get("kind") not in ("data_wait", "slow_data", "slow_rank")
    ]


def exit_record(run_folder: Path) -> dict[str, Any]:
    return json.loads((run_folder / "exit.json").read_text())


def assert_same(first: Any, second: Any, where: str = "") -> None:
    """Nested checkpoint contents, to the bit."""
    if isinstance(first, torch.Tensor):
        assert torch.equal(first, second), where
    elif isinstance(first, dict):
        assert first.keys() == second.keys(), where
        for key in first:
            assert_same(first[key], second[key], f"{where}.{key}")
    elif isinstance(first, list | tuple):
        assert len(first) == len(second), where
        for number, (one, other) in enumerate(zip(first, second, strict=True)):
            assert_same(one, other, f"{where}.{number}")
    else:
        assert first == second, where


def assert_same_end(first: Path, second: Path, steps: int = STEPS) -> None:
    contents = [load_checkpoint(checkpoint_path(folder, steps)) for folder in (first, second)]
    for content in contents:
        del content["config"]["run"], content["config"]["data"]["workers"], content["config"]["shard"]
    assert_same(*contents)
    assert logged(first) == logged(second)


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    """Ranks -> the folder of a run that nothing interrupted."""

    @cache
    def make(ranks: int) -> Path:
        folder = tmp_path_factory.mktemp(f"whole{ranks}")
        fit(config, folder, ranks)
        assert exit_record(folder) == {"code": 0, "message": "done", "rank": 0}
        return folder

    return make


@pytest.mark.parametrize("ranks", [1, 2])
def test_writes_what_it_did(whole, ranks):
    folder = whole(ranks)
    records = logged(folder)
    steps = [record for record in records if "loss" in record]
    assert [record["step"] for record in steps] == list(range(1, STEPS + 1))
    assert steps[-1]["loss"] < steps[0]["loss"]
    losses = [record["rank_losses"] for record in steps if "rank_losses" in record]
    assert len(losses) == (STEPS if ranks > 1 else 0)
    for record, of_ranks in zip(steps, losses, strict=False):
        assert sum(of_ranks) / ranks == pytest.approx(record["loss"])
    assert [record["step"] for record in records if "validation" in record] == [6, 12, 18]
    names = {path.name for path in (folder / "checkpoints").iterdir()}
    assert names == {"best.pt", "step-00000015.pt", "step-00000018.pt"}


def test_a_complete_run_says_what_it_was_and_does_nothing(config, whole):
    folder = whole(1)
    before = logged(folder)
    printed = fit(config, folder, 1)
    assert "12 windows = 1 rank(s) x 12" in printed
    assert "negatives  up to 44 pairs a sample" in printed
    assert "complete: all 18 steps are done" in printed
    assert logged(folder) == before


@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_and_resumed_is_uninterrupted(config, whole, tmp_path, ranks):
    """SIGKILL at step 8, in the middle of an epoch, two steps after a checkpoint; worker processes make the rest."""
    assert interrupted(config, tmp_path, ranks, "SIGKILL", 8) != 0
    if ranks == 2:
        assert exit_record(tmp_path)["code"] == 5
        assert "another rank is gone" in exit_record(tmp_path)["message"]
    assert last_checkpoint(tmp_path) == checkpoint_path(tmp_path, 6)
    assert "after step 6" in fit(config, tmp_path, ranks, "data.workers=2")
    assert_same_end(whole(ranks), tmp_path)


@pytest.mark.parametrize(("ranks", "name"), [(1, "SIGTERM"), (1, "SIGUSR1"), (1, "SIGINT"), (2, "SIGTERM")])
def test_a_signal_saves_at_the_next_step_and_goes_on(config, whole, tmp_path, ranks, name, monkeypatch):
    """With two ranks only the second one gets it, and both stop after the same step."""
    if ranks == 1:
        monkeypatch.setattr(Trainer, "_after", after_signal(Trainer._after, name))
        assert command("fit", str(config), f"run={tmp_path}") == 4
        monkeypatch.undo()
    else:
        # torchrun makes 1 of every exit code.
        assert interrupted(config, tmp_path, ranks, name, 7) == 1
    record = exit_record(tmp_path)
    assert record["code"] == 4
    assert "after step 7 of 18" in record["message"]
    assert last_checkpoint(tmp_path) == checkpoint_path(tmp_path, 7)
    fit(config, tmp_path, ranks)
    assert_same_end(whole(ranks), tmp_path)


@pytest.mark.full
def test_a_sharded_optimizer_saves_what_a_whole_one_does_and_goes_on(config, whole, tmp_path):
    assert interrupted(config, tmp_path, 2, "SIGTERM", 7, "shard=1") == 1
    state = load_checkpoint(checkpoint_path(tmp_path, 7))["optimizer"]["state"]
    assert sorted(state) == list(range(len(state)))
    fit(config, tmp_path, 2, "shard=1")
    assert_same_end(whole(2), tmp_path)


def test_what_ranks_have_a_share_of_is_saved_whole_and_one_process_goes_on(config, whole, tmp_path):
    """Stopped after an epoch, its validation and one step; each rank embeds a block of the split, one an odd one."""
    half = "precision=bfloat16"
    assert interrupted(config, tmp_path, 2, "SIGTERM", 7, "shard=3", "evaluate.batch_size=8", half) == 1
    found = load_checkpoint(checkpoint_path(tmp_path, 7))
    assert "validation" in logged(tmp_path)[6]
    expected = load_checkpoint(checkpoint_path(whole(2), STEPS))
    for key, like in (("model", expected["model"]), *((n, s) for n, s in expected["optimizer"]["state"].items())):
        own = found[key] if key == "model" else found["optimizer"]["state"][key]
        assert {name: value.shape for name, value in own.items()} == {name: value.shape for name, value in like.items()}
    assert found["optimizer"]["param_groups"][0]["params"] == expected["optimizer"]["param_groups"][0]["params"]
    # Each rank draws its own dropout, so only the same ranks come to the same end: see the next test.
    assert "after step 7" in fit(config, tmp_path, 1, half)


@pytest.mark.full
@pytest.mark.parametrize("shard", [2, 3])
def test_ranks_with_a_share_each_go_on_as_if_nothing_had_stopped_them(config, whole, tmp_path, shard):
    one, other = tmp_path / "one", tmp_path / "other"
    settings = [
        f"shard={shard}",
        "negatives.name=queue",
        "negatives.size=17",
        "micro_batches=2",
        "evaluate.batch_size=8",
    ]
    printed = fit(config, one, 2, *settings)
    assert f"over 2 ranks (shard={shard})" in printed
    assert interrupted(config, other, 2, "SIGKILL", 8, *settings) != 0
    assert last_checkpoint(other) == checkpoint_path(other, 6)
    fit(config, other, 2, *settings)
    assert_same_end(one, other)
    alike = tmp_path / "alike"
    fit(config, alike, 2, *settings, "shard=none")
    ours, theirs = (load_checkpoint(checkpoint_path(folder, STEPS)) for folder in (one, alike))
    torch.testing.assert_close(ours["model"], theirs["model"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours["optimizer"]["state"], theirs["optimizer"]["state"], rtol=1e-3, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(("first", "then"), [("2", "none"), ("none", "3"), ("3", "1"), ("1", "2")])
def test_what_is_spread_may_change_between_two_runs(config, whole, tmp_path, first, then):
    assert interrupted(config, tmp_path, 2, "SIGTERM", 7, f"shard={first}") == 1
    fit(config, tmp_path, 2, f"shard={then}")
    ours, theirs = (load_checkpoint(checkpoint_path(folder, STEPS)) for folder in (tmp_path, whole(2)))
    torch.testing.assert_close(ours["model"], theirs["model"], rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_a_step_that_is_not_finite_is_dumped_whole(config, tmp_path, capsys):
    overrides = ["optim.name=sgd", "optim.lr=1e30", "optim.clip=null", "model.normalise=false", "schedule.warmup=0"]
    settings = [*overrides, "shard=2"]
    done = run(["-m", "train", "fit", str(config), f"run={tmp_path}", *settings], 2)
    assert done.returncode == 1
    assert exit_record(tmp_path)["code"] == 5
    [dump] = tmp_path.glob("nonfinite-*.pt")
    assert all(tensor.isfinite().all() for tensor in load_checkpoint(dump)["model"].values())
    assert command("replay", str(dump)) == 5
    assert "fails again" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("offload", ["true", "false"])
@pytest.mark.parametrize("shard", [2, 3])
def test_gpus_with_a_share_each_go_on_from_what_they_saved(config, tmp_path, shard, offload):
    settings = ["device=cuda", f"shard={shard}", f"offload={offload}", "precision=bfloat16"]
    assert interrupted(config, tmp_path, 2, "SIGTERM", 7, *settings) == 1
    fit(config, tmp_path, 2, *settings)
    losses = [record["loss"] for record in logged(tmp_path) if "loss" in record]
    assert losses[-1] < losses[0]


def test_length_classes_of_two_stores_go_on_where_they_stopped(config, small_store, tmp_path, monkeypatch, capsys):
    """Epochs of different lengths, batches of different shapes and sources; stopped within an epoch."""
    other = small_store(tmp_path / "other", splits={"train": 30, "val": 4}, seed=5, set_fingerprint="other")
    together = [
        "order={unit: video, captions: random, buckets: {budget: 24, multiple: 2}}", "batch_size=8", "epochs=2",
        f"mixture={{sources: {{other: {{store: {other}, batch_size: 6, order: {{remainder: fill}}}}}}}}",
    ]  # fmt: skip
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert command("fit", str(config), f"run={whole}", *together) == 0
    printed = capsys.readouterr().out
    assert "turns      50.0% of the steps, as source other" in printed
    assert "buckets    by rows: 6 of up to 4, 4 of up to 5" in printed
    monkeypatch.setattr(Trainer, "_after", after_signal(Trainer._after, "SIGTERM"))
    assert command("fit", str(config), f"run={stopped}", *together) == 4
    monkeypatch.undo()
    assert command("fit", str(config), f"run={stopped}", *together) == 0
    end = last_checkpoint(whole)
    assert end is not None
    assert_same_end(whole, stopped, int(end.stem.removeprefix("step-")))
    records = logged(whole)
    validated = [record["epoch"] for record in records if "validation" in record]
    assert validated == [1.0, 2.0]
    changed = small_store(tmp_path / "changed", splits={"train": 31, "val": 4}, seed=5, set_fingerprint="other")
    moved = [part.replace(str(other), str(changed)) for part in together]
    assert command("fit", str(config), f"run={stopped}", *moved) == 2
    told = capsys.readouterr().err
    assert f"  mixture.sources.other.store={changed}: set 'default' holds other windows or captions than" in told
    assert "(90 windows then, 93 windows now)" in told


@pytest.mark.parametrize(
    "overrides", [("queue", "size=17"), ("moco", "size=17"), ("bank", "size=40")], ids=lambda o: o[0]
)
def test_what_is_remembered_goes_on_too(config, tmp_path, overrides, monkeypatch, capsys):
    """Stopped after step 7 of 18, in the middle of an epoch."""
    name, size = overrides
    arguments = ["fit", str(config), f"negatives.name={name}", f"negatives.{size}"]
    assert command(*arguments, f"run={tmp_path / 'whole'}") == 0
    monkeypatch.setattr(Trainer, "_after", after_signal(Trainer._after, "SIGTERM"))
    assert command(*arguments, f"run={tmp_path / 'run'}") == 4
    monkeypatch.undo()
    assert "remembered " in capsys.readouterr().out
    content = load_checkpoint(checkpoint_path(tmp_path / "run", 7))
    assert content["negatives"]["memory"]
    assert (content["negatives"]["keys"] is not None) == (name == "moco")
    assert command(*arguments, f"run={tmp_path / 'run'}") == 0
    assert_same_end(tmp_path / "whole", tmp_path / "run")


def test_a_run_that_ran_out_of_memory_goes_on_in_the_parts_it_found(config, tmp_path, monkeypatch, capsys):
    """With dropout, which tells parts from the whole."""
    arguments = ["fit", str(config), "optim.scale=sqrt", "optim.base_batch=3"]
    embed = Towers.__call__

    def cramped(self: Towers, inputs: Inputs) -> Embeddings:
        if len(inputs.video_BTD) > 3:
            raise torch.OutOfMemoryError("injected")
        return embed(self, inputs)

    monkeypatch.setattr(Towers, "__call__", cramped)
    assert command(*arguments, f"run={tmp_path / 'whole'}") == 0
    printed = capsys.readouterr().out
    assert "sqrt in the batch)" in printed
    assert "out of memory: the step is done again in micro_batches=4" in printed
    after = Trainer._after
    monkeypatch.setattr(Trainer, "_after", after_signal(after, "SIGTERM"))
    assert command(*arguments, f"run={tmp_path / 'run'}") == 4
    monkeypatch.setattr(Trainer, "_after", after)
    monkeypatch.setattr(Towers, "__call__", embed)
    assert command(*arguments, f"run={tmp_path / 'run'}") == 0
    assert_same_end(tmp_path / "whole", tmp_path / "run")


def test_a_student_learns_from_the_checkpoint_of_a_teacher_and_resumes_under_no_other(config, whole, tmp_path, capsys):
    teacher = checkpoint_path(whole(1), STEPS)
    shared = ["loss.name=distill", "model.dim=6", "epochs=null", "steps=6", "checkpoint.every_steps=3"]
    arguments = ["fit", str(config), *shared, f"run={tmp_path}"]
    assert command(*arguments, f"loss.teacher={teacher}") == 0
    losses = [record["loss"] for record in logged(tmp_path) if "loss" in record]
    assert losses[-1] < losses[0]
    first = load_checkpoint(checkpoint_path(tmp_path, 6))
    assert not any("teacher" in name for name in first["model"])
    checkpoint_path(tmp_path, 6).unlink()
    moved = tmp_path / "moved.pt"
    moved.write_bytes(teacher.read_bytes())
    assert command(*arguments, f"loss.teacher={moved}") == 0
    assert_same(load_checkpoint(checkpoint_path(tmp_path, 6))["model"], first["model"])
    checkpoint_path(tmp_path, 6).unlink()
    capsys.readouterr()
    assert command(*arguments, f"loss.teacher={checkpoint_path(whole(1), 15)}") == 2
    assert "\n  teacher: other content\n" in capsys.readouterr().err


def test_a_teacher_of_other_tokens_or_none_is_refused(config, whole, tmp_path, capsys, small_store):
    arguments = ["fit", str(config), f"run={tmp_path / 'run'}", "loss.name=distill"]
    assert command(*arguments, f"loss.teacher={tmp_path / 'none.pt'}") == 2
    assert "none.pt does not exist" in capsys.readouterr().err
    content = load_checkpoint(checkpoint_path(whole(1), STEPS))
    save_checkpoint(tmp_path / "other.pt", content | {"tokenizer": content["tokenizer"] | {"pad_id": 7}})
    assert command(*arguments, f"loss.teacher={tmp_path / 'other.pt'}") == 2
    assert "trained on other features or tokens" in capsys.readouterr().err
    assert command(*arguments, f"loss.teacher={whole(1)}", "negatives.name=bank") == 2
    assert "a teacher says nothing of what is remembered" in capsys.readouterr().err


def test_a_run_that_gets_no_better_ends_early_and_at_the_same_step_after_a_resume(
    config, tmp_path, monkeypatch, capsys
):
    """No step of the metric is as large as min_delta: the second and third validations are no improvements."""
    settings = ["epochs=6", "stop={patience: 2, min_delta: 5}", "tensorboard=true", "deterministic=true"]
    arguments = ["fit", str(config), *settings]
    assert command(*arguments, f"run={tmp_path / 'whole'}") == 0
    ending = capsys.readouterr().out.splitlines()[-1]
    assert "done: 18 steps of 36: text_to_video.R@10 got no better in 2 validations, as many as stop.patience" in ending
    monkeypatch.setattr(Trainer, "_after", after_signal(Trainer._after, "SIGTERM"))
    assert command(*arguments, f"run={tmp_path / 'run'}") == 4
    monkeypatch.undo()
    assert command(*arguments, f"run={tmp_path / 'run'}") == 0
    assert_same_end(tmp_path / "whole", tmp_path / "run")
    capsys.readouterr()
    assert command(*arguments, f"run={tmp_path / 'run'}") == 0
    assert "complete: text_to_video.R@10 got no better" in capsys.readouterr().out
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 3


def after_signal(after: Any, name: str) -> Any:
    def wrapped(self: Trainer, done: int, result: Any) -> None:
        if done == 7:
            os.kill(os.getpid(), getattr(signal, name))
        after(self, done, result)

    return wrapped


def test_evaluation_is_the_same_at_any_world_size(whole, tmp_path):
    arguments = ["evaluate", str(whole(1)), "--out"]
    assert command(*arguments, str(tmp_path / "1.json")) == 0
    done = run(["-m", "train", *arguments, str(tmp_path / "2.json")], 2)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "2.json").read_bytes()


@pytest.fixture
def started(config, tmp_path):
    """A run folder with a checkpoint, made in this process."""
    assert command("fit", str(config), f"run={tmp_path / 'run'}", "epochs=null", "steps=3") == 0
    return tmp_path / "run"


def test_another_config_or_store_is_refused_with_what_changed(config, started, capsys, small_store, tmp_path):
    same = [f"run={started}", "epochs=null", "steps=3"]
    assert command("fit", str(config), *same, "optim.lr=0.5", "seed=3") == 2
    message = capsys.readouterr().err
    assert "optim.lr: 0.02 -> 0.5" in message
    assert "seed: 0 -> 3" in message
    assert "data_seen" not in message
    other = small_store(tmp_path / "other", set_fingerprint="another cleaning")
    assert command("fit", str(config), *same, f"store={other}") == 2
    message = capsys.readouterr().err
    assert f"\n  store={other}: set 'default' holds other windows or captions than the one that the run" in message
    assert message.count("\n  ") == 1
    assert not re.search("[0-9a-f]{16}", message.replace(str(tmp_path), ""))
    assert command("fit", str(config), *same, "resume=never") == 2
    assert "resume=never, but run folder" in capsys.readouterr().err
    assert exit_record(started)["code"] == 2
    assert command("fit", str(config), *same, f"resume={started}/checkpoints/step-00000009.pt") == 2
    assert "does not exist" in capsys.readouterr().err


def test_other_settings_that_change_no_weight_may_change(config, started, capsys):
    overrides = [f"run={started}", "epochs=null", "steps=3", "log_every=2", "checkpoint.keep=5"]
    assert command("fit", str(config), *overrides) == 0
    assert "complete: all 3 steps are done" in capsys.readouterr().out


def test_an_infinite_loss_stops_with_step_videos_and_a_dump(config, tmp_path, capsys):
    overrides = ["optim.name=sgd", "optim.lr=1e30", "optim.clip=null", "model.normalise=false", "schedule.warmup=0"]
    assert command("fit", str(config), f"run={tmp_path}", *overrides) == 5
    message = capsys.readouterr().err
    assert "expected a finite number; videos train0" in message
    record = exit_record(tmp_path)
    assert record["code"] == 5
    (dump,) = tmp_path.glob("nonfinite-*.pt")
    assert str(dump) in message
    content = load_checkpoint(dump)
    assert content["failure"]["step"] == content["order"]["step"] >= 1
    assert f"step {content['failure']['step'] + 1}:" in message
    assert all(tensor.isfinite().all() for tensor in content["model"].values())
    assert command("replay", str(dump)) == 5
    captured = capsys.readouterr()
    assert f"step {content['failure']['step'] + 1} fails again" in captured.err
    assert f"which failed as {content['failure']['what']} {content['failure']['value']}" in captured.out


def test_weights_that_diverge_are_named_at_validation(config, tmp_path, capsys):
    """One step, so that no later loss shows it first."""
    overrides = ["epochs=null", "steps=1", "optim.lr=1e30", "schedule.warmup=0"]
    assert command("fit", str(config), f"run={tmp_path}", *overrides) == 5
    message = capsys.readouterr().err
    assert "validation after step 1" in message
    assert "e+30 in " in message
    assert "the weights are diverging; lower optim.lr" in message
    assert exit_record(tmp_path)["code"] == 5


def test_a_run_folder_inside_a_store_is_refused(config, capsys, small_store, tmp_path):
    store = small_store(tmp_path / "store")
    before = sorted(store.rglob("*"))
    for folder in (store, store / "manifests" / "mine"):
        assert command("fit", str(config), f"run={folder}") == 2
        assert f"is inside the store {store}" in capsys.readouterr().err
    assert sorted(store.rglob("*")) == before


@pytest.mark.parametrize(
    "pattern", ["features/default/*.npy", "manifests/*/windows-train.csv", "manifests/*/tokens.npy"]
)
def test_a_flipped_bit_in_the_store_is_not_trained_on(config, capsys, small_store, tmp_path, pattern):
    store = small_store(tmp_path / "store")
    (file,) = store.glob(pattern)
    data = file.read_bytes()
    place = next(n for n in range(len(data) // 3, len(data)) if file.suffix != ".csv" or chr(data[n]).isdigit())
    file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    arguments = [f"store={store}", f"run={tmp_path / 'run'}", "epochs=null", "steps=6"]
    assert command("fit", str(config), *arguments) == 1
    message = capsys.readouterr().err
    assert f"{file} is damaged" in message
    assert "run `verify`" in message
    assert exit_record(tmp_path / "run")["code"] == 1


def test_a_damaged_checkpoint_is_not_gone_on_from(config, started, capsys):
    path = started / "checkpoints" / "step-00000003.pt"
    data = path.read_bytes()
    path.write_bytes(data[:999] + bytes([data[999] ^ 1]) + data[1000:])
    assert command("fit", str(config), f"run={started}", "epochs=null", "steps=3") == 1
    assert f"checkpoint {path} is damaged" in capsys.readouterr().err


def test_going_on_from_an_earlier_checkpoint_leaves_the_later_ones_behind(config, tmp_path, monkeypatch, capsys):
    arguments = ["fit", str(config), f"run={tmp_path}", "epochs=null", "steps=9"]
    assert command(*arguments) == 0
    first = load_checkpoint(checkpoint_path(tmp_path, 9))
    folder, earlier = tmp_path / "checkpoints", checkpoint_path(tmp_path, 6)
    (folder / ".step-00000008.pt.tmp").write_bytes(b"of a run that was killed")
    capsys.readouterr()
    monkeypatch.setattr(Trainer, "_after", after_signal(Trainer._after, "SIGTERM"))
    assert command(*arguments, f"resume={earlier}") == 4
    monkeypatch.undo()
    captured = capsys.readouterr()
    assert "are of a branch that is left; kept as left-step-00000009.pt" in captured.out
    assert "saved in " in captured.err
    assert "run it again with resume=auto to go on" in captured.err
    names = {path.name for path in folder.iterdir()}
    assert names == {"best.pt", "left-step-00000009.pt", "step-00000006.pt", "step-00000007.pt"}
    assert command(*arguments) == 0
    assert "after step 7" in capsys.readouterr().out
    assert_same(load_checkpoint(checkpoint_path(tmp_path, 9)), first)


def test_a_damaged_log_is_one_message(config, started, capsys):
    (started / "metrics.jsonl").write_bytes(b"\xfe\xff\n")
    assert command("fit", str(config), f"run={started}", "epochs=null", "steps=3") == 1
    assert "metrics.jsonl line 1 is not a record of `train fit`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "code", "message"),
    [
        (["optim.rate=1"], 2, "optim.rate: unknown key; known here: "),
        (["store=/nowhere"], 2, "/nowhere is no store"),
        (["set=other"], 2, "has no manifest set 'other'; it has default"),
        (["train_split=test"], 2, "no windows of split 'test'; it has train, val"),
        (["batch_size=1000"], 2, "not one batch can be filled; use at most batch_size=72"),
        (["device=cuda"], 3, "device=cuda, but torch finds no CUDA device"),
        (["precision=float16", "device=cpu"], 2, "precision=float16 on device cpu"),
        (["sync_batch_norm=true", "device=cpu"], 2, "sync_batch_norm=true on device cpu"),
        (["negatives.name=queue"], 2, "negatives.size: missing"),
        (["negatives.name=queue", "negatives.size=1000000000"], 2, "lower negatives.size or raise the limit"),
        (["rubbish"], 2, "override 'rubbish' is not of the form key=value"),
    ],
)
def test_wrong_requests_end_with_one_message(config, tmp_path, capsys, overrides, code, message):
    if "device=cuda" in overrides and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert command("fit", str(config), f"run={tmp_path / 'run'}", *overrides) == code
    captured = capsys.readouterr().err
    assert message in captured
    assert captured.startswith("error: ")
    if (tmp_path / "run").exists():
        assert exit_record(tmp_path / "run")["code"] == code
        assert message in exit_record(tmp_path / "run")["message"]


def test_absent_weights_end_with_what_to_get(config, tmp_path, capsys):
    other = tmp_path / "bert.yaml"
    other.write_text(
        config.read_text().replace("{name: words, word_dim: 6, hidden: 12}", "{name: bert, weights: ./none}")
    )
    assert command("fit", str(other), f"run={tmp_path / 'run'}") == 3
    assert "text weights ./none: there is no such folder; expected one with" in capsys.readouterr().err
    assert exit_record(tmp_path / "run")["code"] == 3


def test_a_process_shows_no_traceback_for_a_wrong_request(config):
    done = run(["-m", "train", "fit", str(config), "store=/nowhere"], 1)
    assert done.returncode == 2
    assert done.stderr.startswith("error: /nowhere is no store")
    assert "Traceback" not in done.stderr
    missing = run(["-m", "train", "fit", "/nowhere.yaml"], 1)
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)


def test_help_lists_what_works():
    done = run(["-m", "train", "--help"], 1)
    assert done.returncode == 0
    for name in ("fit", "evaluate", "report"):
        assert name in done.stdout
