"""Wrapping and compiling the towers in one process. Several ranks: integration/test_step_equality."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from shared.errors import RequestError
from train.batch import Batch
from train.distributed import ALONE, World
from train.losses import Loss, MilNceConfig
from train.model import ModelConfig, TokenSpec, TwoTower, VideoHeadConfig, WordsConfig, build_model
from train.optim import OptimConfig, build_optimizer
from train.step import TrainStep
from train.towers import DdpConfig, Inputs, Towers, compile_towers, synchronise_norms

GPU = World(0, 1, 0, torch.device("cuda"))


def make_model() -> TwoTower:
    torch.manual_seed(1)
    config = ModelConfig(dim=8, video=VideoHeadConfig(dropout=0.5), text=WordsConfig(word_dim=6, hidden=16))
    return build_model(config, input_dim=5, tokens=TokenSpec(vocab_size=30, pad_id=0, max_tokens=4))


def make_batch() -> Batch:
    draw = torch.Generator().manual_seed(2)
    tokens = torch.randint(1, 30, (6, 2, 4), generator=draw)
    return Batch(
        torch.randn(6, 3, 5, generator=draw),
        torch.ones(6, 3, dtype=torch.bool),
        tokens,
        torch.ones_like(tokens, dtype=torch.bool),
        torch.ones(6, 2, dtype=torch.bool),
        torch.arange(6),
    )


def rehearsed(model: TwoTower, config: DdpConfig) -> tuple[Towers, list[str]]:
    towers, batch = Towers(model.train(), ALONE, "float32", config), make_batch()
    masks = (batch.token_mask_BKL, batch.caption_mask_BK)
    return towers, towers.rehearse(Inputs(batch.video_BTD, batch.video_mask_BT, batch.tokens_BKL, *masks))


def test_a_rehearsal_names_what_no_embedding_depends_on():
    model = make_model()
    assert rehearsed(model, DdpConfig())[1] == []
    model.text.idle = nn.Parameter(torch.ones(2))
    model.video.still = nn.Parameter(torch.ones(2), requires_grad=False)
    assert rehearsed(model, DdpConfig())[1] == ["text.idle"]


def test_a_parameter_that_ranks_would_wait_for_is_refused_with_its_name():
    model = make_model()
    model.text.idle = nn.Parameter(torch.ones(2))
    towers, unused = rehearsed(model, DdpConfig(find_unused_parameters=False))
    with pytest.raises(RequestError, match=r"depend on 1 parameters .*text.idle the first: set it to auto"):
        towers.join(unused)


def test_synchronised_norms_need_a_gpu_and_a_norm():
    with pytest.raises(RequestError, match=r"sync_batch_norm=true on device cpu: .*GPUs alone"):
        synchronise_norms(make_model(), ALONE)
    with pytest.raises(RequestError, match="the model has no batch norm"):
        synchronise_norms(make_model(), GPU)


def test_synchronised_norms_keep_names_and_weights():
    model = make_model()
    model.video.norm = nn.BatchNorm1d(3)
    weight, names = model.video.norm.weight, list(model.state_dict())
    assert synchronise_norms(model, GPU) is model
    assert isinstance(model.video.norm, nn.SyncBatchNorm)
    assert model.video.norm.weight is weight
    assert list(model.state_dict()) == names


def test_compiling_goes_to_both_towers_in_place_and_draws_as_without(monkeypatch):
    model, asked = make_model(), []
    names = list(model.state_dict())
    monkeypatch.setattr(nn.Module, "compile", lambda module, **options: asked.append((module, options)))
    compile_towers(model)
    assert asked == [(tower, {"options": {"fallback_random": True}}) for tower in (model.video, model.text)]
    assert list(model.state_dict()) == names


@pytest.mark.full
@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")
def test_compiled_towers_take_the_same_step_with_the_same_dropout(micro_batches):
    found = []
    for compiled in (False, True):
        model = make_model()
        if compiled:
            compile_towers(model)
        optimizer = build_optimizer(model, OptimConfig(name="sgd", lr=0.1))
        options = {"factor": lambda _: 1.0, "clip": 1.0, "total_steps": 9, "micro_batches": micro_batches}
        step = TrainStep(model, optimizer, Loss(MilNceConfig()), ALONE, **options)
        torch.manual_seed(5)
        losses = [step(make_batch(), index).loss for index in range(2)]
        found.append((losses, model.state_dict()))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
