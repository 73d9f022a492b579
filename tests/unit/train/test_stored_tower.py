"""A text tower over stored embeddings through everything that trains, measures, plans and replays."""

from __future__ import annotations

import json
import math

import pytest
import torch
from typer.testing import CliRunner

from shared.errors import RequestError, StoreError
from shared.store import open_store
from train.batch import Batch
from train.checkpoint import checkpoint_path, load_checkpoint, save_checkpoint
from train.cli import app
from train.config import FitConfig
from train.data import WindowData
from train.distributed import ALONE
from train.embedded import embed_split
from train.evaluate import evaluate
from train.loop import fit
from train.losses import Loss, MilNceConfig
from train.model import ModelConfig, StoredConfig, TokenSpec, TwoTower, build_model
from train.model.temperature import TemperatureConfig
from train.optim import OptimConfig, build_optimizer
from train.plan import plan
from train.replay import replay
from train.sources import open_sources
from train.step import TrainStep

STEPS = 40


def make_model() -> TwoTower:
    torch.manual_seed(1)
    config = ModelConfig(dim=8, text=StoredConfig(hidden=6), temperature=TemperatureConfig(value=0.1, learned=True))
    return build_model(config, input_dim=5, tokens=TokenSpec(30, 0, 4, embedding=3)).double()


def make_batch(clips: int = 7, candidates: int = 2) -> Batch:
    draw = torch.Generator().manual_seed(2)
    caption_mask = torch.rand(clips, candidates, generator=draw) < 0.8
    caption_mask[0] = True
    return Batch(
        torch.randn(clips, 3, 5, generator=draw, dtype=torch.float64),
        torch.ones(clips, 3, dtype=torch.bool),
        torch.ones(clips, candidates, 4, dtype=torch.int32),
        torch.ones(clips, candidates, 4, dtype=torch.bool),
        caption_mask,
        torch.arange(clips),
        torch.randn(clips, candidates, 3, generator=draw, dtype=torch.float64),
    )


def gradients(batch: Batch, micro_batches: int = 1) -> dict[str, torch.Tensor]:
    model = make_model()
    optimizer = build_optimizer(model, OptimConfig(name="sgd", lr=0.01))
    step = TrainStep(
        model, optimizer, Loss(MilNceConfig()), ALONE, factor=lambda _: 1.0, clip=None, total_steps=9,
        micro_batches=micro_batches,
    )  # fmt: skip
    step(batch, 0)
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def test_what_stands_at_empty_slots_and_captions_without_a_token_reaches_nothing():
    batch = make_batch()
    batch.token_mask_BKL[0, 0] = False
    alive = batch.caption_mask_BK & batch.token_mask_BKL.any(dim=-1)
    found = make_model()(*list(vars(batch).values())[:5], batch.caption_BKE)
    assert torch.equal(found.text_mask_BK, alive)
    assert not found.text_BKD[~alive].any()
    expected = gradients(batch)
    batch.caption_BKE[~alive] = math.nan
    for name, gradient in gradients(batch).items():
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=0)
        assert gradient.isfinite().all()


@pytest.mark.parametrize("micro_batches", [2, 3, 7])
def test_parts_of_a_step_give_the_gradients_of_the_whole(micro_batches):
    expected = gradients(make_batch())
    for name, gradient in gradients(make_batch(), micro_batches).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-12)


def test_bags_that_are_widened_for_other_ranks_change_nothing(monkeypatch):
    expected = gradients(make_batch())
    monkeypatch.setattr("train.step.agree_on_bags", lambda clips, candidates, world: candidates + 3)
    for name, gradient in gradients(make_batch()).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-12)


def test_tokens_and_batches_without_embeddings_are_refused():
    model, batch = make_model(), make_batch()
    with pytest.raises(RequestError, match="reads stored caption embeddings and knows no tokens"):
        model.embed_text(batch.tokens_BKL[:, 0], batch.token_mask_BKL[:, 0])
    with pytest.raises(RequestError, match="the batch has none: open the windows with embeddings=True"):
        model(*list(vars(batch).values())[:5])


@pytest.fixture(scope="module")
def config(tmp_path_factory, small_store):
    folder = tmp_path_factory.mktemp("stored")
    values = {
        "store": small_store(folder / "store", splits={"train": 24, "val": 12}, encoder="e"),
        "run": folder / "run",
        "model": {"dim": 12, "text": {"name": "stored"}},
        "batch_size": 12,
        "steps": STEPS,
        "eval_every": 20,
        "optim": {"lr": 0.05},
        "negatives": {"name": "moco", "size": 24, "momentum": 0.9},
        "device": "cpu",
    }
    found = FitConfig.model_validate(values)
    fit(found)
    return found


def test_what_captions_say_is_learned_and_measured(config, tmp_path):
    found = evaluate(config.run)["text_to_video"]
    assert found["queries"] == 36
    assert found["R@10"] > found["chance"]["R@10"]["high"]
    for captions in ("all", "mean"):
        assert evaluate(config.run, settings={"captions": captions}, out=tmp_path / "m.json")["captions"] == captions


def test_queries_are_those_of_any_other_tower(config, monkeypatch):
    data = WindowData(open_store(config.store), "default", "val", embeddings=True)
    model = build_model(config.model, input_dim=data.input_dim, tokens=data.tokens)
    whole = embed_split(model, data, ALONE, 8, "all")
    offsets = data.manifest.token_offsets.copy()
    offsets[data.windows.candidates[0] + 1 :] -= 2
    data.manifest.__dict__["token_offsets"] = offsets
    fewer = embed_split(model, data, ALONE, 8, "all")
    assert len(fewer.text_MD) == len(whole.text_MD) - 1
    torch.testing.assert_close(fewer.text_MD, whole.text_MD[1:])


def test_another_encoder_is_refused_and_another_tokenizer_is_not(config, small_store, tmp_path):
    out = tmp_path / "m.json"
    same = small_store(tmp_path / "same", splits={"val": 5}, seed=4, encoder="e")
    assert evaluate(config.run, store=same, out=out)["windows"] == 15
    other = small_store(tmp_path / "other", splits={"val": 5}, encoder="f")
    with pytest.raises(RequestError, match=r"embeddings\.identity\.weights: 'e' -> 'f'"):
        evaluate(config.run, store=other, out=out)
    without = small_store(tmp_path / "without", splits={"val": 5})
    with pytest.raises(StoreError, match="set 'default' has no caption embeddings"):
        evaluate(config.run, store=without, out=out)
    content = load_checkpoint(checkpoint_path(config.run, STEPS))
    del content["version"]
    content["tokenizer"] = content["tokenizer"] | {"vocab_size": 9}
    save_checkpoint(tmp_path / "run" / "checkpoints" / "best.pt", content)
    assert evaluate(tmp_path / "run", store=same, out=out)["windows"] == 15


def test_a_run_goes_on_under_no_other_embeddings(config, small_store):
    changed = small_store(config.run.parent / "again", splits={"train": 24, "val": 12}, encoder="f")
    with pytest.raises(RequestError, match=r"\n  embeddings\.identity\.weights: 'e' -> 'f'"):
        fit(config.model_copy(update={"store": changed}))


def test_a_dump_is_enough_to_run_a_step_again(config, tmp_path):
    content = load_checkpoint(checkpoint_path(config.run, STEPS))
    content["random"] = content["random"].repeat(2, 1)
    content["failure"] = {"step": 1, "what": "loss", "value": "nan", "videos": [], "store": str(config.store)}
    del content["version"]
    save_checkpoint(tmp_path / "nonfinite-00000001.pt", content)
    assert replay(tmp_path / "nonfinite-00000001.pt").first is None
    content["model"]["text.projection.bias"][0] = math.nan
    save_checkpoint(tmp_path / "nonfinite-00000001.pt", content)
    assert [part.name for part in replay(tmp_path / "nonfinite-00000001.pt").parts if part.fault][:2] == [
        "weights",
        "text tower",
    ]


def test_a_plan_counts_what_a_batch_holds(config):
    words = config.model_copy(update={"model": ModelConfig(dim=12)})
    with_them, without = (plan(one, ranks=1, cores=4) for one in (config, words))
    # 12 clips of 5 captions, 7 numbers of 2 bytes each, rounded up to 64 bytes.
    assert with_them["batch"] - without["batch"] == -(-12 * 5 * 14 // 64) * 64
    captions = open_store(config.store).manifest_set("default").info.captions
    assert with_them["sources"][0]["page_cache"] - without["sources"][0]["page_cache"] == 14 * captions


def test_stores_of_two_encoders_make_no_mixture(config, small_store, tmp_path):
    def mixed(store):
        both = FitConfig.model_validate(
            config.model_dump() | {"mixture": {"sources": {"more": {"store": store, "batch_size": 4}}}}
        )
        main = WindowData(open_store(both.store), "default", "train", embeddings=True)
        return open_sources(both, main)

    same = small_store(tmp_path / "same", splits={"train": 5}, seed=2, encoder="e")
    assert [data.tokens.embedding for data in mixed(same).datas] == [7, 7]
    with pytest.raises(RequestError, match=r"embeddings\.identity\.weights: 'e' -> 'f'"):
        mixed(small_store(tmp_path / "other", splits={"train": 5}, encoder="f"))


def test_a_student_that_reads_tokens_has_no_such_teacher(config, tmp_path):
    values = config.model_dump() | {"run": tmp_path / "run", "negatives": None, "steps": 2}
    values |= {"loss": {"name": "distill", "teacher": str(config.run)}}
    with pytest.raises(RequestError, match="which come only with a student that reads them, too"):
        fit(FitConfig.model_validate(values | {"model": {"dim": 4}}))
    fit(FitConfig.model_validate(values))
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["validation"]["text_to_video"]["queries"] == 36


def test_its_keys_are_told(config):
    shown = CliRunner().invoke(app, ["keys", "model.text"])
    assert "stored" in shown.output
    assert "the captions' stored embeddings" in shown.output
