"""Any number of ranks takes the same step as one process: loss, every gradient, every weight, in float64 to 1e-9.

It drives train's own step (towers, DDP, gather, loss, clipping, SGD with momentum, learned temperature) in real gloo
processes. The planted faults are the common ones of public trainers; each must be caught.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertModel

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("step_worker.py")
TOLERANCE = 1e-9
# Four ranks take every case in minutes, where two cores are busy with other things as well.
pytestmark = pytest.mark.timeout(900)
WORDS = {"name": "words", "word_dim": 5, "hidden": 11}
BERT = {"name": "bert", "weights": "TINY_BERT"}


def case(
    video: dict,
    text: dict,
    loss: dict | None = None,
    fault: str | None = None,
    negatives: dict | None = None,
    **optim: Any,
) -> str:
    return json.dumps(
        {
            "model": {
                "dim": 8,
                "video": video,
                "text": text,
                "temperature": {"value": 0.2, "learned": True},
                "logit_bias": -2.0 if loss and loss["name"] == "sigmoid" else None,
            },
            "loss": loss or {"name": "mil_nce"},
            "negatives": negatives,
            "optim": {"name": "sgd", "lr": 0.05, "clip": 0.3, **optim},
            "fault": fault,
        }
    )


CASES = {
    f"{head}-{text['name']}": case({"name": head}, text)
    for head in ("mean", "max", "attention")
    for text in (WORDS, BERT)
} | {
    "deep-head-frozen-bert": case(
        {"name": "attention", "hidden": 9, "layer_norm": True}, {**BERT, "frozen": True}, clip=None
    ),
    "adamw-groups": case({"name": "mean"}, WORDS, name="adamw", lr=0.01, groups=[{"pattern": "text.*", "scale": 0.1}]),
}
# With 12 clips, tiles of 5 leave an edge at any world size.
LOSSES = {
    "mil-nce": {"name": "mil_nce"},
    "positives-twice": {"name": "mil_nce", "positives": "twice"},
    "same-video-counts": {"name": "mil_nce", "mask_same_video": False},
    "sampled-candidate": {"name": "mil_nce", "sample_candidate": True},
    "clamped-gradient": {"name": "mil_nce", "clamp_gradient": 0.05},
    "info-nce": {"name": "info_nce"},
    "dual-softmax": {"name": "dual_softmax", "prior": 2.0},
    "sigmoid": {"name": "sigmoid"},
}
DISTILL = {"name": "distill", "teacher": "of step_worker.py", "teacher_temperature": 0.3}
TILED = {
    f"{name}-tile-{tile}": case({"name": "mean"}, WORDS, {**loss, "tile": tile})
    for name, loss in LOSSES.items()
    for tile in (0, 5)
}
CASES |= TILED | {f"distill-tile-{tile}": case({"name": "mean"}, WORDS, {**DISTILL, "tile": tile}) for tile in (0, 5)}
# 12 clips a step and more captions wrap both rings at once; a bank of 70 videos knows 11 of them.
NEGATIVES = {
    "queue": {"name": "queue", "size": 17},
    "moco": {"name": "moco", "size": 17, "momentum": 0.6},
    "bank": {"name": "bank", "size": 40},
}
REMEMBERING = {
    f"{name}-{kind}-tile-{tile}": case({"name": "mean"}, WORDS, {**loss, "tile": tile}, negatives=negatives)
    for name, loss in LOSSES.items()
    for kind, negatives in NEGATIVES.items()
    for tile in (0, 5)
}
REMEMBERING |= {
    f"distill-mil-nce-{kind}-tile-5": case(
        {"name": "mean"}, WORDS, {**DISTILL, "tile": 5, "base": {"name": "mil_nce", "tile": 5}}, negatives=negatives
    )
    for kind, negatives in NEGATIVES.items()
}
SAMPLE = random.Random(6).sample(sorted(REMEMBERING), 6)
CASES |= {name: REMEMBERING[name] for name in SAMPLE}
# In micro-batches: 12 clips in 5, or 6 in 4, are not equal parts.
ACCUMULATED = {
    f"{name}, in {parts}": (name, parts)
    for name in (*CASES, *REMEMBERING)
    for parts in (2, 5)
    if parts == 5 or name in CASES
}
QUICK = {
    f"{name}, in {parts}": (name, parts)
    for parts in (2, 5)
    for name in (*(f"{loss}-tile-5" for loss in (*LOSSES, "distill")), "attention-bert", "deep-head-frozen-bert")
} | {f"{name}, in 5": (name, 5) for name in SAMPLE}


def in_parts(chosen: dict[str, tuple[str, int]], cases: dict[str, str]) -> dict[str, str]:
    return {label: json.dumps(json.loads(cases[name]) | {"micro_batches": n}) for label, (name, n) in chosen.items()}


CASES |= in_parts(QUICK, CASES)
# The last rank's tower takes two clips at a time, so one process ends at 8 parts of 12 clips, two ranks at 4 of 6.
CRAMPED = "mil-nce-tile-5, cramped"
CASES |= {CRAMPED: json.dumps(json.loads(CASES["mil-nce-tile-5"]) | {"fits": 2})}
CASES |= in_parts({f"mil-nce-tile-5, in {parts}": ("mil-nce-tile-5", parts) for parts in (4, 8)}, CASES)
FAULTS = {
    "gather without gradient": "mil-nce-tile-5",
    "gather with own gradient only": "mil-nce-tile-5",
    "gather backward only slices": "mil-nce-tile-5",
    "temperature counted per rank": "mil-nce-tile-5",
    "columns without the other ranks": "mil-nce-tile-5",
    "mean of log-probabilities": "mil-nce-tile-5",
    "a tile's edge left out": "mil-nce-tile-5",
    "queue in another rank order": "mil-nce-queue-tile-5",
    "queue of own clips": "mil-nce-queue-tile-5",
    "own video in the queue": "mil-nce-queue-tile-5",
    "empty part of the queue": "mil-nce-queue-tile-5",
    "keys follow too early": "mil-nce-moco-tile-5",
    "temperature counted per micro-batch": "mil-nce-tile-5, in 5",
    "gradients of other clips": "mil-nce-tile-5, in 5",
}
CASES |= {name: REMEMBERING[name] for name in FAULTS.values() if name in REMEMBERING}
# Each takes the plain case's step.
WRAPPED = {
    "small buckets": {"ddp": {"bucket_cap_mb": 1}},
    "static graph": {"ddp": {"static_graph": True}},
    "looks for unused parameters": {"ddp": {"find_unused_parameters": True}},
    "looks, in 5": {"ddp": {"find_unused_parameters": True}, "micro_batches": 5},
    "an idle parameter": {"idle": True},
    "an idle parameter, in 5": {"idle": True, "micro_batches": 5},
    "an idle parameter, static graph": {"idle": True, "ddp": {"static_graph": True}},
}
CASES |= {name: json.dumps(json.loads(CASES["mil-nce-tile-5"]) | options) for name, options in WRAPPED.items()}
CASES |= {
    "transformer-checkpointed-bert": case(
        {"name": "transformer", "transformer": {"heads": 2}}, {**BERT, "checkpointing": True}
    ),
    "frozen-text": case({"name": "mean"}, WORDS, freeze=["text.*"]),
}
CASES |= in_parts({"attention-words, in 4": ("attention-words", 4)}, CASES)
CRAMPED_BACK = "attention-words, cramped in the backward"
CASES |= {CRAMPED_BACK: json.dumps(json.loads(CASES["attention-words"]) | {"fits_back": 2})}
# Of 2 and 3 parameters are cut, too: rows that the ranks do not divide, and fewer rows than ranks.
SPREAD = ("mil-nce-tile-5", "adamw-groups", "mil-nce-tile-5, in 5")
OF_GRADIENTS = ("mil-nce-tile-5", "frozen-text", "attention-words, in 4", CRAMPED_BACK)
OF_PARAMETERS = (
    *SPREAD,
    *OF_GRADIENTS[1:],
    "sigmoid-tile-5",
    "mil-nce-queue-tile-5",
    "transformer-checkpointed-bert",
    "deep-head-frozen-bert",
    "an idle parameter",
)


def spread(shard: int, names: Iterable[str]) -> dict[str, str]:
    return {f"{name}, shard {shard}": json.dumps(json.loads(CASES[name]) | {"shard": shard}) for name in names}


SHARDED = spread(1, SPREAD) | spread(2, OF_GRADIENTS) | spread(3, OF_PARAMETERS)
IN_THREE = {
    name: SHARDED[name]
    for name in ("attention-words, in 4, shard 2", "sigmoid-tile-5, shard 3", "adamw-groups, shard 3")
}
EVERY_SHARDED = {
    name: text
    for number, one in enumerate(CASES)
    for name, text in spread(2 + number % 2, [one]).items()
    if "moco" not in name and "static graph" not in name
}
CASES |= SHARDED
FAULTS |= {
    "temperature of each rank": "mil-nce-tile-5, shard 2",
    "norm of own share": "mil-nce-tile-5, shard 3",
}
PLANTED = {
    f"planted: {fault}": json.dumps(json.loads(CASES[name]) | {"fault": fault}) for fault, name in FAULTS.items()
}


@pytest.fixture(scope="module")
def run_world(tmp_path_factory):
    """World size -> what each rank saved, each world run once, even if it fails."""
    return worlds(tmp_path_factory, "equality", CASES | PLANTED)


@pytest.fixture(scope="module")
def run_accumulated(tmp_path_factory):
    """The same of every case in micro-batches."""
    cases = REMEMBERING | CASES
    return worlds(tmp_path_factory, "accumulated", cases | in_parts(ACCUMULATED, cases))


@pytest.fixture(scope="module")
def run_sharded(tmp_path_factory):
    """The same of every case, of which ranks have a share each."""
    return worlds(tmp_path_factory, "sharded", EVERY_SHARDED)


@pytest.fixture(scope="module")
def run_in_three(tmp_path_factory):
    """The same of some of them."""
    return worlds(tmp_path_factory, "three", IN_THREE)


@pytest.fixture(scope="module")
def run_remembering(tmp_path_factory):
    """The same of every loss with everything that can be remembered."""
    return worlds(tmp_path_factory, "remembering", REMEMBERING)


def worlds(
    temporary: pytest.TempPathFactory, name: str, cases: dict[str, str]
) -> Callable[[int], list[dict[str, Any]]]:
    """A world that one worker of pytest has run is there for the others."""
    base = temporary.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)

    @cache
    def run(size: int) -> list[dict[str, Any]]:
        said = folder / f"world{size}.stderr"
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not said.exists():
                (folder / "cases.json").write_text(json.dumps(cases))
                save_tiny_bert(folder / "bert")
                said.write_text(launch(size, folder))
        files = [folder / f"world{size}-rank{rank}.pt" for rank in range(size)]
        assert all(file.exists() for file in files), said.read_text()
        return [torch.load(file, weights_only=True) for file in files]

    return run


def save_tiny_bert(folder: Path) -> None:
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=40,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    BertModel(config).save_pretrained(folder)


def launch(size: int, folder: Path) -> str:
    """The end of what the ranks wrote to stderr."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    command = [sys.executable, *(torchrun if size > 1 else []), str(WORKER)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    arguments = [str(folder / "cases.json"), str(folder / "bert"), str(folder)]
    ended = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, timeout=850)
    return f"exit {ended.returncode}: {ended.stderr[-9000:]}"


def assert_same_training(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    for index, (ours, theirs) in enumerate(zip(actual["steps"], expected["steps"], strict=True)):
        for key, value in theirs["result"].items():
            assert ours["result"][key] == pytest.approx(value, rel=TOLERANCE, abs=TOLERANCE), (index, key)
        assert_same_tensors(ours["gradients"], theirs["gradients"], f"step {index}, gradient of")
        assert_same_tensors(ours["remembered"], theirs["remembered"], f"step {index}, remembered")
    assert_same_tensors(actual["weights"], expected["weights"], "weights of")


def assert_same_tensors(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], what: str) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert value.dtype in (torch.float64, torch.int64, torch.bool)
        torch.testing.assert_close(
            actual[name], value, rtol=TOLERANCE, atol=TOLERANCE, msg=lambda text, name=name: f"{what} {name}: {text}"
        )


WORLDS = [2, pytest.param(3, marks=pytest.mark.full), pytest.param(4, marks=pytest.mark.full)]


@pytest.mark.parametrize("size", WORLDS)
@pytest.mark.parametrize("name", CASES)
def test_every_rank_takes_the_step_of_one_process(run_world, name, size):
    [alone] = run_world(1)
    for rank in run_world(size):
        assert_same_training(rank[name], alone[name])


@pytest.mark.full
@pytest.mark.parametrize("name", IN_THREE)
def test_three_ranks_with_a_share_each_take_the_step_of_one_process(run_world, run_in_three, name):
    [alone] = run_world(1)
    for rank in run_in_three(3):
        assert_same_training(rank[name], alone[name])


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", EVERY_SHARDED)
def test_ranks_with_a_share_each_take_every_step_of_one_process(run_sharded, name, size):
    [alone] = run_sharded(1)
    for rank in run_sharded(size):
        assert_same_training(rank[name], alone[name])


@pytest.mark.parametrize("size", WORLDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_check_catches_a_planted_fault(run_world, fault, size):
    [alone] = run_world(1)
    for rank in run_world(size):
        with pytest.raises(AssertionError):
            assert_same_training(rank[f"planted: {fault}"], alone[FAULTS[fault]])


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", REMEMBERING)
def test_every_rank_remembers_what_one_process_does(run_remembering, name, size):
    [alone] = run_remembering(1)
    for rank in run_remembering(size):
        assert_same_training(rank[name], alone[name])


@pytest.mark.parametrize("label", QUICK)
def test_micro_batches_take_the_step_of_the_whole_batch(run_world, label):
    [alone] = run_world(1)
    assert_same_training(alone[label], alone[QUICK[label][0]])


@pytest.mark.parametrize("name", WRAPPED)
def test_however_ranks_average_the_step_is_the_same(run_world, name):
    [alone] = run_world(1)
    for rank in run_world(2):
        found, expected = dict(rank[name]), alone["mil-nce-tile-5"]
        found["weights"] = {key: weight for key, weight in found["weights"].items() if key != "video.idle"}
        for step in found["steps"]:
            assert step["gradients"].pop("video.idle", torch.zeros(2)).eq(0).all()
        assert_same_training(found, expected)


@pytest.mark.parametrize("shard", [2, 3])
def test_a_rehearsal_of_one_share_tells_what_fits_and_leaves_nothing_behind(run_world, shard):
    for rank in run_world(2):
        found, from_the_start = (rank[f"{name}, shard {shard}"] for name in (CRAMPED_BACK, "attention-words, in 4"))
        assert [step["parts"] for step in found["steps"]] == [4] * 3
        for key, weight in from_the_start["weights"].items():
            assert torch.equal(found["weights"][key], weight)


@pytest.mark.parametrize(("size", "parts"), [(1, 8), (2, 4)])
def test_a_rank_that_runs_out_of_memory_has_all_of_them_go_on_in_the_same_smaller_parts(run_world, size, parts):
    for rank in run_world(size):
        cramped, from_the_start = rank[CRAMPED], rank[f"mil-nce-tile-5, in {parts}"]
        assert [step["parts"] for step in cramped["steps"]] == [parts] * 3
        for name, weight in from_the_start["weights"].items():
            assert torch.equal(cramped["weights"][name], weight)


@pytest.mark.full
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("label", ACCUMULATED)
def test_every_rank_takes_the_step_of_the_whole_batch_in_micro_batches(run_accumulated, label, size):
    [alone] = run_accumulated(1)
    for rank in run_accumulated(size):
        assert_same_training(rank[label], alone[ACCUMULATED[label][0]])


@pytest.mark.full
@pytest.mark.parametrize("kind", NEGATIVES)
@pytest.mark.parametrize("name", LOSSES)
def test_tiles_remember_what_the_whole_matrix_does(run_remembering, name, kind):
    [alone] = run_remembering(1)
    assert_same_training(alone[f"{name}-{kind}-tile-5"], alone[f"{name}-{kind}-tile-0"])


@pytest.mark.parametrize("name", [*LOSSES, "distill"])
def test_tiles_take_the_step_of_the_whole_matrix(run_world, name):
    [alone] = run_world(1)
    assert_same_training(alone[f"{name}-tile-5"], alone[f"{name}-tile-0"])


def test_every_trainable_parameter_has_a_gradient_and_the_temperature_moves(run_world):
    [alone] = run_world(1)
    for name in CASES:
        first, weights = alone[name]["steps"][0], alone[name]["weights"]
        expected = {key for key in weights if not (key.startswith("text.encoder") and "frozen" in name)}
        expected = {key for key in expected if not (key.startswith("text.") and "frozen-text" in name)}
        expected -= {"video.idle"}
        assert set(first["gradients"]) == expected
        assert all(gradient.any() for key, gradient in first["gradients"].items() if not silent(key))
        assert first["gradients"]["temperature.log_value"].abs() > 1e-6
    assert alone["sigmoid-tile-5"]["steps"][0]["gradients"]["logit_bias"].abs() > 1e-6


def silent(key: str) -> bool:
    """A key's bias shifts all scores of a softmax alike, so its gradient is exactly zero or rounding."""
    return key.endswith("key.bias")


def test_clipping_was_active_so_that_constant_factors_would_show(run_world):
    [alone] = run_world(1)
    assert alone["mean-words"]["steps"][0]["result"]["grad_norm"] > 0.3
