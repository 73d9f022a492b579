"""Which parts of a model are spread, over a process group of one. Several ranks: integration/test_step_equality.py."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from shared.errors import RequestError
from train.batch import Batch
from train.distributed import World
from train.losses import Loss, SigmoidConfig
from train.model import ModelConfig, TokenSpec, TwoTower, VideoHeadConfig, WordsConfig, build_model
from train.model.row_transformer import TransformerConfig
from train.model.temperature import TemperatureConfig
from train.optim import OptimConfig, build_optimizer
from train.precision import Precision
from train.sharded_state import full_state, load_full_state, load_whole_model, whole_model
from train.sharded_towers import ShardedTowers, runs_together
from train.step import TrainStep


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def world(request) -> Iterator[World]:
    """The only rank of a process group."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    backend = "nccl" if request.param == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    yield World(0, 1, 0, torch.device(request.param, 0) if request.param == "cuda" else torch.device("cpu"))
    dist.destroy_process_group()


def make_model(world: World) -> TwoTower:
    torch.manual_seed(1)
    video = VideoHeadConfig(name="transformer", transformer=TransformerConfig(heads=2))
    config = ModelConfig(
        dim=8,
        video=video,
        text=WordsConfig(word_dim=6, hidden=16),
        temperature=TemperatureConfig(learned=True),
        logit_bias=-2.0,
    )
    model = build_model(config, input_dim=5, tokens=TokenSpec(vocab_size=30, pad_id=0, max_tokens=4))
    # In float64, since AdamW makes a step of the mere rounding of a gradient that should be zero.
    return model.to(world.device).double()


def make_batch(world: World) -> Batch:
    draw = torch.Generator().manual_seed(2)
    tokens = torch.randint(1, 30, (6, 2, 4), generator=draw)
    return Batch(
        torch.randn(6, 3, 5, generator=draw, dtype=torch.float64),
        torch.ones(6, 3, dtype=torch.bool),
        tokens,
        torch.ones_like(tokens, dtype=torch.bool),
        torch.ones(6, 2, dtype=torch.bool),
        torch.arange(6),
    ).to(world.device)


def make_step(
    model: TwoTower, world: World, sharded: ShardedTowers | None, name: str = "adamw", precision: Precision = "float32"
) -> TrainStep:
    return TrainStep(
        model,
        build_optimizer(model, OptimConfig(name=name, lr=0.01)),
        Loss(SigmoidConfig()),
        world,
        factor=lambda _: 1.0,
        clip=0.1,
        total_steps=9,
        precision=precision,
        sharded=sharded,
        micro_batches=2,
    )


def test_towers_and_their_layers_are_spread_and_scalars_are_not(world):
    model = make_model(world)
    names = list(model.state_dict())
    model.text.gate = nn.Parameter(torch.tensor(0.5, device=world.device, dtype=torch.float64))
    assert not runs_together(model)
    ShardedTowers(model, world, 3)
    assert runs_together(model)
    units = [name for name, module in model.named_modules() if isinstance(module, FSDPModule)]
    layers = [f"video.pool.transformer.layers.{number}" for number in range(2)]
    assert units == ["video", *layers, "text"]
    assert [name for name in model.state_dict() if name != "text.gate"] == names
    plain = [name for name, parameter in model.named_parameters() if not isinstance(parameter, DTensor)]
    assert plain == ["logit_bias", "text.gate", "temperature.log_value"]


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("shard", [2, 3])
def test_steps_and_what_is_saved_are_those_of_whole_towers(world, shard, offload):
    plain, model = make_model(world), make_model(world)
    sharded = ShardedTowers(model, world, shard, offload=offload)
    ours, theirs = make_step(model, world, sharded), make_step(plain, world, None)
    for index in range(2):
        found, expected = ours(make_batch(world), index), theirs(make_batch(world), index)
        assert found.loss == pytest.approx(expected.loss, rel=1e-9)
        assert found.grad_norm == pytest.approx(expected.grad_norm, rel=1e-9)
    saved = copy.deepcopy((whole_model(model, world), full_state(ours.optimizer, world)))
    torch.testing.assert_close(saved[0], plain.state_dict(), check_device=False, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        saved[1]["state"], theirs.optimizer.state_dict()["state"], check_device=False, rtol=1e-9, atol=1e-9
    )
    after = ours(make_batch(world), 2)
    load_whole_model(model, saved[0], world)
    load_full_state(ours.optimizer, saved[1], world)
    assert ours(make_batch(world), 2).loss == pytest.approx(after.loss, rel=1e-9)
    sizes = {parameter.to_local().device.type for parameter in model.parameters() if isinstance(parameter, DTensor)}
    assert sizes == {"cpu" if offload else world.device.type}


@pytest.mark.parametrize("shard", [2, 3])
def test_half_precision_is_that_of_whole_towers(world, shard):
    plain, model = make_model(world).float(), make_model(world).float()
    sharded = ShardedTowers(model, world, shard)
    batch = make_batch(world)
    seen: list[torch.dtype] = []
    model.text.hidden.register_forward_hook(lambda *arguments: seen.append(arguments[2].dtype))
    ours, theirs = (
        [make_step(towers, world, spread, "sgd", "bfloat16")(batch, index).loss for index in range(2)]
        for towers, spread in ((model, sharded), (plain, None))
    )
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert set(seen) == {torch.bfloat16}


def test_a_batch_norm_that_learns_is_refused_and_a_frozen_one_is_not(world):
    model = make_model(world)
    model.video.norm = nn.BatchNorm1d(3, device=world.device, dtype=torch.float64)
    sharded = ShardedTowers(model.train(), world, 2)
    with pytest.raises(RequestError, match=r"shard=2, but batch norm video.norm .*optim.freeze=\[video.norm"):
        sharded.refuse_training_norms()
    model.video.norm.eval()
    sharded.refuse_training_norms()
