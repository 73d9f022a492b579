from __future__ import annotations

import pytest

from shared.config import load_config
from shared.errors import RequestError
from train.config import FitConfig
from train.order.epochs import EqualEpochs


@pytest.fixture
def minimal(tmp_path):
    path = tmp_path / "fit.yaml"
    path.write_text("store: s\nrun: r\nepochs: 2\n")
    return path


def test_minimal_config_and_overrides(minimal):
    config = load_config(minimal, FitConfig, ["optim.lr=0.5", "model.text.name=words", "loss.name=info_nce"])
    assert config.optim.lr == 0.5
    assert config.loss.name == "info_nce"
    order = EqualEpochs(7)
    assert config.total_steps(order) == 14


def test_the_sigmoid_loss_with_its_bias(minimal):
    config = load_config(minimal, FitConfig, ["loss.name=sigmoid", "model.logit_bias=-10"])
    assert config.model.logit_bias == -10


@pytest.mark.parametrize(
    "override",
    [
        "seed=0",
        "optim={name: sgd, momentum: 0.5}",
        "schedule.name=constant",
        "model.video={name: transformer, transformer: {layers: 3}}",
        "model.temperature={learned: true, maximum: 2}",
        "model.text.name=words",
    ],
)
def test_dumped_config_is_the_config(minimal, override):
    """With every key at its default, those without effect among them, as a run folder and a checkpoint hold it."""
    config = load_config(minimal, FitConfig, [override])
    assert FitConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["optim.rate=1"], "optim.rate: unknown key; known here: .*lr"),
        (["steps=5"], r"\n  epochs: give epochs or steps, one of them"),
        (["batch_size=0"], "batch_size"),
        (["loss.name=sigmoid"], r"\n  loss: the sigmoid loss needs a bias, .*: set model.logit_bias=-10$"),
        (
            ["model.logit_bias=-10"],
            r"\n  model.logit_bias: only loss.name=sigmoid has a bias, .*mil_nce .*leave it out",
        ),
        (["loss.name=distill", "loss.teacher=t", "loss.base.name=sigmoid"], "the sigmoid loss needs a bias"),
        (["loss.name=distill", "loss.teacher=t", "negatives.name=bank"], r"\n  negatives: .*give loss.base, or leave"),
        (["loss.name=distill"], "loss.teacher: missing"),
        (["stop.patience=2", "eval_every=0"], r"\n  stop: .*without a validation"),
        (["stop.patience=0"], "stop.patience"),
        (["loss.name=dual_softmax", "loss.clamp_gradient=1"], "loss.clamp_gradient"),
        (["loss.name=mil_nce", "loss.tile=-1"], "loss.tile"),
        (["model.temperature.schedule=linear"], "needs a final temperature"),
        (["seed=99999999999999999999999"], "seed: expected integer from 0 and below 9223372036854775808"),
        (["model.dim=1000000000"], "model.dim: expected integer from 1 to 65536"),
        (["model.text.name=words", "model.text.hidden=1000000000"], "model.text.hidden: .* 65536"),
        (["model.video.hidden=1000000000"], "model.video.hidden: .* 65536"),
        (["optim.lr=inf"], "optim.lr: expected a finite number"),
        (["optim.lr=nan"], "optim.lr: expected a finite number"),
        (["optim.clip=inf"], "optim.clip: expected a finite number"),
        (["optim.weight_decay=inf"], "optim.weight_decay: expected a finite number"),
        (["optim.betas=[0.9, 1.0]"], "optim.betas.1: expected number from 0.* below 1"),
        (["model.temperature.value=inf"], "model.temperature.value: expected a finite number"),
        (["schedule.final=nan"], "schedule.final: expected a finite number"),
        (["evaluate.recall_at=[0]"], "evaluate.recall_at.0: "),
        (["data.prefetch=99999999999999999999"], "data.prefetch: "),
        (["order.candidates=1000000000"], "order.candidates: "),
        (["evaluate.recall_at=[1]"], r"\n  checkpoint.metric: .* \(evaluate.recall_at says which k\)"),
        (["checkpoint.metric=text_to_video.R@7"], "expected .*R@1, R@5, R@10, R@50, MedR or MeanR"),
        (["checkpoint.metric=dual_softmax.text_to_video.R@1"], "is not measured"),
        (["evaluate.dual_softmax=0"], "evaluate.dual_softmax: "),
        (["order.buckets.by=rows"], "order.buckets.budget: missing"),
        (["order.buckets={budget: 9, bounds: [3, 3]}"], "order.buckets.bounds: bounds must rise from one to the next"),
        (["order.buckets={budget: 9, bounds: []}"], "order.buckets.bounds: "),
        (["order.buckets={budget: 0}"], "order.buckets.budget: expected integer from 1"),
        (["mixture.choice=sampled"], "mixture.sources: missing"),
        (["mixture.sources={}"], "mixture.sources: "),
        (["mixture.sources.b.weight=1"], "mixture.sources.b.store: missing"),
        (["mixture.sources.b={store: x, weight: 0}"], "mixture.sources.b.weight: expected number from "),
        (["mixture.sources={../b: {store: x}}"], "mixture.sources: '../b' is no name here"),
        (["micro_batches=0"], "micro_batches: expected integer of at least 1"),
        (["micro_batches=2", "ddp.static_graph=true"], r"\n  ddp: ddp.static_graph=true with micro_batches=2: .*"),
        (["ddp.bucket_cap_mb=0"], "ddp.bucket_cap_mb: expected integer of at least 1"),
        (["ddp.find_unused_parameters=perhaps"], "ddp.find_unused_parameters"),
        (["shard=4"], "shard: "),
        (['data.stage=""'], "data.stage: .*an empty path would be the current folder: name a folder"),
        (["offload=true"], r"\n  offload: offload=true with shard=none: .* set shard=2 or shard=3"),
        (["offload=true", "shard=1"], "offload=true with shard=1: .* set shard=2 or shard=3"),
        (["shard=2", "negatives.name=moco", "negatives.size=9"], "negatives.name=moco with shard=2: .*set shard=1"),
        (["shard=3", "compile=true"], r"\n  shard: compile=true with shard=3: .*leave it out"),
        (["shard=3", "sync_batch_norm=true"], "sync_batch_norm=true with shard=3: "),
        (["shard=2", "precision=float16"], "precision=float16 with shard=2: .*bfloat16"),
        (["shard=2", "ddp.static_graph=true"], "ddp.static_graph=true with shard=2: .*FSDP2"),
        (["shard=2", "ddp.bucket_cap_mb=9"], "ddp.bucket_cap_mb=9 with shard=2: "),
        (["precision=float8"], "precision: "),
        (["optim.scale=linear"], "optim: scale=linear with base_batch=None: .*give both or neither"),
        (
            ["model.text={name: bert, weights: x, frozen: true, checkpointing: true}"],
            "frozen=true with checkpointing=true",
        ),
        (["negatives.name=queue"], "negatives.size: missing"),
        (["negatives.name=moco", "negatives.size=9", "negatives.momentum=1"], "negatives.momentum: .* below 1"),
    ],
)
def test_wrong_requests_name_the_key(minimal, overrides, message):
    with pytest.raises(RequestError, match=message):
        load_config(minimal, FitConfig, overrides)


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("lr=0.1", "`optim.lr`"),
        ("optim.sheduler=cosine", "`model.temperature.schedule` or `schedule`"),
        ("optim.weight_decai=1", "`weight_decay`"),
        ("learned=true", "`model.temperature.learned`"),
        ("model.margin_wait=1", None),
        ("size=3", "`negatives.size`"),
        ("name=3", None),
        ("checkpoint.patience=3", "`stop.patience`"),
    ],
)
def test_a_key_of_another_section_is_found(minimal, override, meant):
    with pytest.raises(RequestError, match="unknown key; known here: ") as refused:
        load_config(minimal, FitConfig, [override])
    assert str(refused.value).endswith(f"; is {meant} meant?") if meant else "meant" not in str(refused.value)


IDLE = {
    "optim.momentum=0.5": "only sgd has it, and optim.name=adamw",
    "optim={name: sgd, betas: [0.9, 0.95]}": "only adamw has them",
    "model.video.transformer.layers=3": "only the head of that name has one, and model.video.name=mean",
    "model.video={name: transformer, transformer: {local_layers: 0, window: 2}}": "only local layers",
    "model.video={name: transformer, transformer: {max_rows: 9}}": "positions=sinusoidal",
    "schedule={name: constant, final: 0.1}": "schedule.name=constant",
    "model.temperature.minimum=0.02": "learned=false",
    "model.temperature.maximum=0.5": "learned=false",
}


@pytest.mark.parametrize("override", IDLE)
def test_what_would_have_no_effect_is_refused(minimal, override):
    with pytest.raises(RequestError, match=rf"\n  [a-z_.]+: has no effect here: .*{IDLE[override]}.*; take it out$"):
        load_config(minimal, FitConfig, [override])


def test_random_words_that_do_not_learn_are_refused(minimal):
    with pytest.raises(RequestError, match=r"model.text.train_table: false without a table would freeze random words"):
        load_config(minimal, FitConfig, ["model.text={name: words, train_table: false}"])
    load_config(minimal, FitConfig, ["model.text={name: words, table: t.npy, train_table: false}"])


def test_what_has_no_effect_may_stand_at_its_default(minimal):
    """As in the config.yaml of every run folder."""
    explicit = ["optim.momentum=0.9", "schedule={name: constant, final: 0}", "model.temperature.minimum=0.01"]
    load_config(minimal, FitConfig, [*explicit, "model.video.transformer.window=4", "optim.betas=[0.9, 0.999]"])


def test_identity_is_what_decides_the_weights(minimal):
    def identity(*overrides):
        return load_config(minimal, FitConfig, overrides).identity()

    same = [
        "run=x",
        "store=y",
        "device=cpu",
        "log_every=3",
        "resume=never",
        "checkpoint.keep=9",
        "evaluate.batch_size=7",
        "micro_batches=4",
        "shard=3",
        "compile=true",
        "shard=1",
        "ddp.bucket_cap_mb=9",
    ]
    for override in same:
        assert identity(override) == identity()
    assert identity("shard=2", "offload=true") == identity()
    assert identity("negatives.name=bank") != identity()
    assert identity("loss.name=distill", "loss.teacher=a") == identity("loss.name=distill", "loss.teacher=b")
    assert identity("loss.name=distill", "loss.teacher=a") != identity()
    for override in ["seed=1", "optim.lr=0.1", "order.unit=window", "epochs=null", "data.max_rows=3", "model.dim=8"]:
        extra = ["steps=4"] if override == "epochs=null" else []
        assert identity(override, *extra) != identity()
